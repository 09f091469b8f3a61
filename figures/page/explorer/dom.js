"use strict";
// Elements of a page and of a picture from a tag, attributes and children. A text stays a text: nothing is read as markup.

const maker = (space) => (tag, attributes = {}, ...children) => {
  const one = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(one.style, value);  // the page's policy forbids style in attributes
    else if (value !== null) one.setAttribute(name, value);
  }
  one.append(...children.flat());
  return one;
};
const make = maker("http://www.w3.org/1999/xhtml"), draw = maker("http://www.w3.org/2000/svg");
