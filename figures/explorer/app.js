"use strict";
// The state of the page, what is computed from it, and the controls that change it.

const KINDS = ["full", "partial", "none", "bos", "early"];
const KIND_NAMES = {full: "full match", partial: "partial match", none: "no match", bos: "BOS", early: "before the first candidate"};
const DATA = JSON.parse(document.getElementById("data").textContent);
const MODELS = new Map(DATA.models.map((row) => [row.name, row]));
const element = (id) => document.getElementById(id);

let state = null;  // {model, sequence, tokens, query, beta, kappa, alpha}
let hovered = null;  // a query that is only looked at
let focus = null;  // a key that is pointed at in a picture
let touched = false;  // whether the last pointer on the strip was a finger
const loaded = new Map();  // models whose weights have been unpacked
let ran = {model: null, tokens: null, output: null};  // the last forward pass

const row = () => MODELS.get(state.model);
const shape = () => ({vocab: row().config.vocab, order: row().config.order});
const drawn = () => row().sequences[state.sequence];
const edited = () => state.tokens.some((token, place) => token !== drawn().tokens[place]);
const query = () => (hovered === null ? state.query : hovered);

function startOf(name, sequence = 0) {
  const chosen = MODELS.get(name), {order, bos} = chosen.config;
  return {model: name, sequence, tokens: [...chosen.sequences[sequence].tokens], query: chosen.config.length - 1,
    beta: chosen.beta ? [...chosen.beta] : new Array(order).fill(DATA.start.beta), kappa: bos ? (chosen.kappa ?? DATA.start.kappa) : null, alpha: 1};
}

// --- a state as the part of an address after #, and back -----------------------------------------------------------

function toHash(one) {
  const parts = {m: one.model, s: one.sequence, q: one.query, b: one.beta.map((value) => value.toFixed(3)).join(","),
    k: one.kappa === null ? "none" : one.kappa.toFixed(3), a: one.alpha.toFixed(3)};
  const original = MODELS.get(one.model).sequences[one.sequence].tokens;
  if (one.tokens.some((token, place) => token !== original[place])) parts.x = one.tokens.map(letter).join("");
  return `#${new URLSearchParams(parts)}`;
}

/** The state that an address asks for; what it does not say, or says wrongly, is left at its start. */
function fromHash(text) {
  const given = new URLSearchParams(text.slice(1));
  const name = MODELS.has(given.get("m")) ? given.get("m") : DATA.models[0].name;
  const chosen = MODELS.get(name), {length, vocab, order, bos} = chosen.config;
  const sequence = whole(given.get("s"), chosen.sequences.length) ?? 0;
  const one = startOf(name, sequence);
  one.query = whole(given.get("q"), length) ?? one.query;
  const beta = (given.get("b") || "").split(",").map(Number);
  if (given.has("b") && beta.length === order && beta.every(Number.isFinite)) one.beta = beta;
  if (bos && given.has("k") && Number.isFinite(Number(given.get("k")))) one.kappa = Number(given.get("k"));
  if (Number(given.get("a")) > 0) one.alpha = Number(given.get("a"));
  const tokens = [...(given.get("x") || "")].map((one) => one.charCodeAt(0) - 97);
  if (tokens.length === length && tokens.every((token) => token >= 0 && token < vocab)) one.tokens = tokens;
  return one;
}

function whole(text, end) {
  const value = Number(text);
  return text !== null && Number.isInteger(value) && value >= 0 && value < end ? value : null;
}

// --- what is computed ----------------------------------------------------------------------------------------------

function modelOutput() {
  const tokens = state.tokens.join(",");
  if (ran.model !== state.model || ran.tokens !== tokens) {
    if (!loaded.has(state.model)) loaded.set(state.model, loadModel(row()));
    ran = {model: state.model, tokens, output: forward(loaded.get(state.model), state.tokens)};
  }
  return ran.output;
}

/** The laws of the table: [key, name, law or null]. */
function allLaws() {
  const t = query(), last = t === state.tokens.length - 1, known = !edited();
  const {vocab, order} = shape(), prior = row().prior;
  const laws = [
    ["model", "the model", modelOutput().laws[t]],
    ["law", "soft matching, beta and kappa of the sliders", softMatching(state.tokens, t, {vocab, ...state}).law],
    ["hard", "its limit: hard matching, equal betas to infinity, no BOS", hardMatching(state.tokens, t, {vocab, order})],
    ["add_alpha", `its limit with BOS: add-alpha, alpha = ${state.alpha.toFixed(2)}`, addAlpha(state.tokens, t, {vocab, order}, state.alpha)],
    ["maximum_likelihood", "maximum likelihood; uniform where the context is new", maximumLikelihood(state.tokens, t, {vocab, order})],
    ["katz", "Katz back-off: the longest suffix seen", katz(state.tokens, t, {vocab, order})],
  ];
  if (prior.kind === "independent")
    laws.push(["bayes", "Bayes: add-alpha at the prior's alpha", addAlpha(state.tokens, t, {vocab, order}, prior.alpha)]);
  else laws.push(["bayes", "Bayes, stored", known && last ? drawn().bayes : null]);
  laws.push(["truth", "the true law", known ? drawn().laws[t] : null]);
  return laws;
}

function panels() {
  const t = query(), {vocab, order, bos} = row().config, offset = bos ? 1 : 0;
  const output = modelOutput(), law = softMatching(state.tokens, t, {vocab, ...state});
  const kinds = matchMasks(state.tokens, t, order).map((mask) => kindOf(mask, order));
  if (bos) kinds.unshift("bos");
  const laws = new Map(allLaws().map(([key, , value]) => [key, value]));
  const common = {tokens: state.tokens, query: t, vocab, offset, kinds, truth: laws.get("truth"), bayes: laws.get("bayes"),
    focus: focus !== null && focus <= t + offset ? focus : null};
  const lags = output.copies.map((pattern) => lagOf(pattern, order, offset));
  const model = {...common, copies: output.copies, lags, weights: output.match[t + offset], prediction: output.laws[t]};
  const exact = {...common, copies: exactCopies(order, offset), lags: lags.map((_, head) => head + 1), prediction: law.law,
    weights: bos ? [law.bos, ...law.keys] : law.keys};
  const scale = Math.max(...model.weights, ...exact.weights, 0.05);
  return [model, exact].map((view) => ({...view, scale, ...votesOf(view), words: panelWords(view)}));
}

/** What the construction's copy heads do: head r looks r positions back. */
function exactCopies(order, offset) {
  return Array.from({length: order}, (_, head) => Array.from({length: state.tokens.length + offset}, (_, position) =>
    Array.from({length: position + 1}, (_, source) => (source === position - head - 1 ? 1 : 0))));
}

function votesOf(view) {
  const votesByKind = Object.fromEntries(KINDS.map((kind) => [kind, new Array(view.vocab).fill(0)]));
  view.weights.forEach((weight, position) => {
    const mine = votesByKind[view.kinds[position]];
    if (view.kinds[position] === "bos") mine.forEach((_, symbol) => { mine[symbol] += weight / view.vocab; });
    else mine[view.tokens[position - view.offset]] += weight;
  });
  return {votesByKind, votes: votesByKind.full.map((_, symbol) => KINDS.reduce((sum, kind) => sum + votesByKind[kind][symbol], 0))};
}

function massWords(view) {
  const mass = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  view.weights.forEach((weight, position) => { mass[view.kinds[position]] += weight; });
  return KINDS.filter((kind) => mass[kind] >= 0.0005).map((kind) => `${KIND_NAMES[kind]} ${mass[kind].toFixed(3)}`).join(", ");
}

function panelWords(view) {
  const law = view.prediction.map((value, symbol) => `${letter(symbol)} ${value.toFixed(3)}`).join(", ");
  return `Attention of the query at position ${view.query + 1}: ${massWords(view)}. Predicted law: ${law}.`;
}

/** The lag that a copy head attends to most, over all positions that have it. */
function lagOf(pattern, order, offset) {
  const lags = Array.from({length: order}, (_, place) => place + 1), rows = pattern.slice(offset + order);
  const mass = (lag) => rows.reduce((sum, row, place) => sum + row[offset + order + place - lag], 0);
  return lags.reduce((best, lag) => (mass(lag) > mass(best) ? lag : best));
}

/** What the copy heads of the model do at the query; where BOS gets more than the lag, why the arrows point there. */
function copyWords(view) {
  const target = view.query + view.offset;
  const heads = view.copies.map((pattern, head) => {
    const lag = view.lags[head], source = target - lag;
    return {lag, head, own: source >= view.offset ? pattern[target][source] : null, bos: view.offset ? pattern[target][0] : 0};
  }).filter((one) => one.own !== null);
  const words = heads.map(({head, lag, own, bos}) => `head (0, ${head}) puts ${own.toFixed(2)} on its lag ${lag}${view.offset ? ` and ${bos.toFixed(2)} on BOS` : ""}`);
  if (!words.length) return "";
  const said = `Copy heads (layer, head) of the model at this query: ${words.join(", ")}.`;
  if (!heads.some(({own, bos}) => bos > own)) return said;
  const where = target === state.tokens.length + view.offset - 1 ? ", at the one query that its loss reads" : "";
  const law = row().fit_success ? " The match head makes up for it: its scores still follow the law, with the beta and kappa of this model." : "";
  return `${said} The arrows to BOS are no error of the picture: this model learned them${where}.${law}`;
}

// --- what is shown -------------------------------------------------------------------------------------------------

function render() {
  const [model, law] = panels();
  drawPanel(element("model-picture"), model);
  drawPanel(element("law-picture"), law);
  element("model-words").textContent = massWords(model);
  element("law-words").textContent = massWords(law);
  element("key-words").textContent = focusWords(model, law);
  element("copy-words").textContent = copyWords(model);
  renderStrip(model.kinds);
  renderTable();
  renderControls();
}

function focusWords(model, law) {
  const gap = totalVariation(model.weights, law.weights).toFixed(3);
  if (model.focus === null) return `Model and law put ${gap} of their attention on different keys (total variation). Point at a bar to follow one key.`;
  const t = query(), position = model.focus, mask = matchMasks(state.tokens, t, shape().order)[position - model.offset];
  const lags = state.beta.map((_, place) => place + 1).filter((lag) => mask >= 0 && mask >> (lag - 1) & 1);
  const score = position < model.offset ? `kappa = ${state.kappa.toFixed(2)}` : mask < 0 ? "no score: it is no candidate"
    : `${lags.map((lag) => `beta_${lag}`).join(" + ") || "0"} = ${maskWeight(mask, state.beta).toFixed(2)}`;
  return `${keyWords(model, position)} in the model, ${law.weights[position].toFixed(4)} in the law; score in the law: ${score}.`;
}

function renderStrip(kinds) {
  const t = query(), offset = row().config.bos ? 1 : 0, strip = element("strip"), original = drawn().tokens;
  if (strip.children.length !== state.tokens.length)
    strip.innerHTML = state.tokens.map((_, place) => `<button type="button" data-place="${place}"></button>`).join("");
  [...strip.children].forEach((button, place) => {
    const kind = place > t ? "later" : kinds[place + offset], name = letter(state.tokens[place]);
    const changed = state.tokens[place] !== original[place];
    button.className = `${kind}${place === t ? " query" : ""}${changed ? " edited" : ""}`;
    button.innerHTML = `${name}<small>${place + 1}</small>`;
    const what = place === t ? "the query" : place > t ? "after the query" : KIND_NAMES[kind];
    button.setAttribute("aria-label", `position ${place + 1}: ${name}, ${what}${changed ? ", changed" : ""}`);
    button.tabIndex = place === t ? 0 : -1;
  });
}

function renderTable() {
  const laws = allLaws(), truth = laws.find(([key]) => key === "truth")[2];
  const symbols = Array.from({length: shape().vocab}, (_, symbol) => letter(symbol));
  const cells = (law) => law.map((value) => `<td data-value="${value}">${value.toFixed(4)}</td>`).join("");
  const lines = laws.map(([key, name, law]) => `<tr data-law="${key}"><th scope="row">${name}</th>${law ? cells(law)
    : `<td colspan="${symbols.length}">not known here</td>`}<td>${law && truth ? klDivergence(truth, law).toFixed(4) : "-"}</td></tr>`);
  element("laws").innerHTML = `<caption class="soft">after position ${query() + 1}</caption><thead><tr><th scope="col">estimator</th>${symbols.map((one) => `<th scope="col">${one}</th>`).join("")}<th scope="col">KL to the true law, nats</th></tr></thead><tbody>${lines.join("")}</tbody>`;
  element("truth-note").textContent = edited()
    ? "The sequence was changed: it is no longer a draw from the chain, so the true law and the stored answer of Bayes are left out."
    : query() < state.tokens.length - 1
      ? "Models are trained to predict after the last token only. At this earlier query the model need not follow the law, and a construction, whose biases are tied to the length, does not."
      : "";
}

function renderControls() {
  state.beta.forEach((value, place) => setSlider(`beta-${place + 1}`, value));
  if (state.kappa !== null) setSlider("kappa", state.kappa);
  setSlider("alpha", state.alpha);
  element("query").value = state.query + 1;
  element("query-value").textContent = query() + 1;
}

function setSlider(id, value) {
  element(id).value = value;
  element(id).setAttribute("aria-valuetext", value.toFixed(2));
  element(`${id}-value`).textContent = value.toFixed(2);
}

/** What depends on the model alone. */
function renderModel() {
  const {length, order, bos} = row().config, names = [];
  for (let lag = 1; lag <= order; lag++) names.push([`beta-${lag}`, `beta_${lag}`, -2, 14]);
  if (bos) names.push(["kappa", "kappa", -4, 18]);
  names.push(["alpha", "alpha of add-alpha", 0.01, 5]);
  element("sliders").innerHTML = names.map(([id, name, low, high]) => `<label for="${id}">${name} <input type="range" id="${id}" min="${low}" max="${high}" step="any"> <output id="${id}-value" for="${id}"></output></label>`).join("");
  element("model").value = state.model;
  element("sequence").innerHTML = row().sequences.map((_, place) => `<option value="${place}">${place + 1}</option>`).join("");
  element("sequence").value = state.sequence;
  element("query").max = length;
  element("about").textContent = row().about;
  element("strip").innerHTML = "";
}

// --- what changes it -----------------------------------------------------------------------------------------------

function change(part) {
  Object.assign(state, part);
  history.replaceState(null, "", toHash(state));
  render();
}

function restart(one) {
  state = one;
  hovered = focus = null;
  renderModel();
  change({});
}

function setToken(place, symbol) {
  change({tokens: state.tokens.map((token, other) => (other === place ? symbol : token))});
}

function onSlider({target}) {
  const value = Number(target.value);
  if (target.id === "kappa" || target.id === "alpha") change({[target.id]: value});
  else change({beta: state.beta.map((old, place) => (target.id === `beta-${place + 1}` ? value : old))});
}

/** A click changes the token. With Shift, or by the first tap of a finger, which cannot point, it is kept as the query. */
function onToken(event) {
  const place = placeOf(event), keep = event.shiftKey || (touched && place !== state.query);
  touched = false;
  if (place === null) return;
  if (keep) change({query: place});
  else setToken(place, (state.tokens[place] + 1) % shape().vocab);
}

function onKey(event) {
  const place = Number(event.target.dataset.place), {vocab} = shape();
  const move = {ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: state.tokens.length - 1}[event.key];
  const symbol = event.key.length === 1 ? event.key.toLowerCase().charCodeAt(0) - 97 : -1;
  if (move !== undefined && move >= 0 && move < state.tokens.length) element("strip").children[move].focus();
  else if (symbol >= 0 && symbol < vocab) setToken(place, symbol);
  else if (event.key.toLowerCase() === "p") change({query: place});
  else return;
  event.preventDefault();
}

function placeOf(event) {
  const button = event.target.closest("[data-place]");
  return button ? Number(button.dataset.place) : null;
}

function lookAt(place) {
  if (hovered === place) return;
  hovered = place;
  focus = null;
  render();
}

function listen() {
  const strip = element("strip");
  element("model").innerHTML = DATA.groups.map((group) => `<optgroup label="${group.name}">${group.models.map((name) => `<option value="${name}">${MODELS.get(name).label}</option>`).join("")}</optgroup>`).join("");
  element("legend").innerHTML = KINDS.map((kind) => `<li><span style="background:${kind === "early" ? "transparent" : `var(--${kind})`}"></span>${KIND_NAMES[kind]}</li>`).join("")
    + '<li><span class="line" style="border-color:var(--head-1)"></span>copies of lag 1</li><li><span class="line" style="border-color:var(--head-2)"></span>copies of lag 2</li><li><span class="line" style="border-color:var(--ink)"></span>true law</li><li><span class="line" style="border-color:var(--ink);border-top-style:dashed"></span>Bayes</li><li><span style="background:var(--mark);transform:rotate(45deg) scale(0.75)"></span>prediction</li>';
  element("model").addEventListener("change", ({target}) => restart(startOf(target.value)));
  element("sequence").addEventListener("change", ({target}) => restart({...startOf(state.model, Number(target.value)), beta: state.beta, kappa: state.kappa, alpha: state.alpha}));
  element("query").addEventListener("input", ({target}) => { hovered = null; change({query: Number(target.value) - 1}); });
  element("sliders").addEventListener("input", onSlider);
  element("reset-tokens").addEventListener("click", () => change({tokens: [...drawn().tokens]}));
  element("reset-law").addEventListener("click", () => { const {beta, kappa} = startOf(state.model); change({beta, kappa}); });
  element("flat").addEventListener("click", () => change({beta: state.beta.map(() => 0)}));
  element("hard").addEventListener("click", () => change({beta: state.beta.map(() => 12)}));
  element("copy-link").addEventListener("click", copyLink);
  strip.addEventListener("pointerover", (event) => { if (placeOf(event) !== null) lookAt(placeOf(event)); });
  strip.addEventListener("pointerleave", () => lookAt(null));
  strip.addEventListener("focusin", (event) => { if (placeOf(event) !== null) lookAt(placeOf(event)); });
  strip.addEventListener("focusout", () => lookAt(null));
  strip.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; });
  strip.addEventListener("click", onToken);
  strip.addEventListener("keydown", onKey);
  for (const id of ["model-picture", "law-picture"]) {
    const point = (event) => { const key = event.target.closest("[data-key]"); const next = key ? Number(key.dataset.key) : null; if (next !== focus) { focus = next; render(); } };
    element(id).addEventListener("pointerover", point);
    element(id).addEventListener("pointerleave", () => { focus = null; render(); });
  }
  window.addEventListener("hashchange", () => restart(fromHash(location.hash)));
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    element("link-said").textContent = "copied";
  } catch {
    element("link-said").textContent = "the address of this page is the link";
  }
}

listen();
restart(fromHash(location.hash));
