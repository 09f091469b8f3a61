"use strict";
// Filters of the claims, cards that a link opens, contents that follow. The page is whole without this script.

const chosen = (id) => document.getElementById(id).value;

function filterCards() {
  const cards = [...document.querySelectorAll("section[aria-labelledby=claims] .card")];
  for (const card of cards)
    card.hidden = (chosen("by-verdict") !== "" && card.dataset.verdict !== chosen("by-verdict"))
      || (chosen("by-topic") !== "" && card.dataset.topic !== chosen("by-topic"));
  document.getElementById("shown").textContent = `${cards.filter((card) => !card.hidden).length} of ${cards.length} claims shown`;
}

/** A link to a card, or to a figure inside one, opens it. */
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const card = target?.closest(".card");
  if (!card) return;
  card.hidden = false;
  card.open = true;
  target.scrollIntoView();
}

/** The contents mark the last part whose heading is above the middle of the window. */
function follow() {
  const links = [...document.querySelectorAll("nav a")];
  const above = links.filter((link) => document.querySelector(link.hash).getBoundingClientRect().top < innerHeight / 2);
  for (const link of links) link.toggleAttribute("aria-current", link === (above.at(-1) ?? links[0]));
}

const filters = document.querySelector(".filters");
filters.hidden = false;
filters.addEventListener("change", filterCards);
addEventListener("hashchange", openTarget);
addEventListener("scroll", follow, {passive: true});
if (matchMedia("(max-width: 62rem)").matches) document.querySelector("nav details").open = false;
filterCards();
openTarget();
follow();
