"use strict";
// Filters of the claims, tables that sort, contents that fold on a narrow screen. The page is whole without this script.

const chosen = (id) => document.getElementById(id).value;

function filterRows() {
  const rows = [...document.querySelectorAll(".row")];
  for (const row of rows)
    row.hidden = (chosen("by-verdict") !== "" && row.dataset.verdict !== chosen("by-verdict"))
      || (chosen("by-topic") !== "" && row.dataset.topic !== chosen("by-topic"));
  document.getElementById("shown").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} claims shown`;
}

/** Numbers by size and before texts, texts by alphabet. */
function compareCells(one, other) {
  const [a, b] = [one, other].map((text) => (text.trim() === "" ? NaN : Number(text)));
  if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b;
  return Number.isNaN(a) - Number.isNaN(b) || one.localeCompare(other);
}

function sortBy(header) {
  const body = header.closest("table").tBodies[0], place = header.cellIndex;
  const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
  const rows = [...body.rows].sort((a, b) => sign * compareCells(a.cells[place].textContent, b.cells[place].textContent));
  body.append(...rows);
}

for (const header of document.querySelectorAll("thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = header.textContent;
  button.addEventListener("click", () => sortBy(header));
  header.replaceChildren(button);
}
const filters = document.querySelector(".filters");
filters.hidden = false;
filters.addEventListener("change", filterRows);
if (matchMedia("(max-width: 62rem)").matches) document.querySelector("nav details").open = false;
filterRows();
