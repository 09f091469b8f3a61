"use strict";
// The two pictures as one file. A file has no style sheet: every element takes along how it looks here.

const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight", "text-anchor"];
const PIXELS = 3;  // of a PNG, to each of the page
const TITLE_HIGH = 26;

/** Both pictures side by side as SVG, each below its name. */
function bothPictures() {
  const pictures = ["model-picture", "law-picture"].map((id) => document.getElementById(id));
  const [wide, high] = [pictures[0].viewBox.baseVal.width, pictures[0].viewBox.baseVal.height], look = getComputedStyle(document.body);
  const whole = draw("svg", {xmlns: "http://www.w3.org/2000/svg", width: 2 * wide, height: high + TITLE_HIGH, viewBox: `0 0 ${2 * wide} ${high + TITLE_HIGH}`},
    draw("rect", {width: 2 * wide, height: high + TITLE_HIGH, fill: getComputedStyle(pictures[0].closest("section")).backgroundColor}));
  pictures.forEach((picture, place) => {
    const name = picture.closest("figure").querySelector("b").textContent;
    whole.append(draw("text", {x: place * wide + 8, y: 18, "font-family": "sans-serif", "font-size": 14, fill: look.color}, name),
      draw("g", {transform: `translate(${place * wide} ${TITLE_HIGH})`}, [...picture.children].map(withLooks)));
  });
  return new XMLSerializer().serializeToString(whole);
}

function withLooks(element) {
  const copy = element.cloneNode(false), look = getComputedStyle(element);
  copy.removeAttribute("style");
  for (const name of LOOKS) if (look[name]) copy.setAttribute(name, look[name]);
  copy.append(...[...element.childNodes].map((child) => (child.nodeType === Node.TEXT_NODE ? child.cloneNode() : withLooks(child))));
  return copy;
}

async function save(kind) {
  const text = bothPictures();
  const file = kind === "svg" ? new Blob([text], {type: "image/svg+xml"}) : await rastered(text);
  const link = make("a", {href: URL.createObjectURL(file), download: `explorer.${kind}`});
  link.click();
  URL.revokeObjectURL(link.href);
}

async function rastered(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = make("canvas", {width: PIXELS * image.width, height: PIXELS * image.height});
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}
