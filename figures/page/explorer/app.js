"use strict";
// The state of the page, what is computed from it, and the controls that change it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MODELS = new Map(DATA.models.map((row) => [row.name, row]));
const RANGES = {beta: [-2, 14], kappa: [-6, 32], alpha: [0.01, 5]};  // of the sliders: the ends of beta and kappa are nearly limits
const MOST = 50;  // of a beta or kappa that is typed or comes with a link: e^(2 MOST) is still a number
const ADDRESS_PAUSE = 200;  // milliseconds without a change before the address follows: browsers refuse many changes in a row
const element = (id) => document.getElementById(id);

let state = null;  // {model, sequence, tokens, query, beta, kappa, alpha, symbol}
let hovered = null;  // a query that is only looked at
let editedAt = null;  // a token that was just changed: until the pointer leaves it, the kept query is shown
let focus = null;  // a key that is pointed at in a picture
let typedInto = null;  // the number that someone is typing, which is left alone
let touched = false;  // whether the last pointer on the strip was a finger
const loaded = new Map();  // models whose weights have been unpacked
const modelMeans = new Map();  // of a model that was opened: its mean KL over its stored sequences
let panelWidth = 660;  // of a picture, in pixels; measured when the window changes, because measuring is slow
let addressed = null;  // the timer of the next change of the address
let ran = {model: null, tokens: null, output: null};  // the last forward pass

const row = () => MODELS.get(state.model);
const shape = () => ({vocab: row().config.vocab, order: row().config.order});
const drawn = () => row().sequences[state.sequence];
const edited = () => state.tokens.some((token, place) => token !== drawn().tokens[place]);
const query = () => (hovered === null ? state.query : hovered);

// --- where it starts -----------------------------------------------------------------------------------------------

/** The value that a score is largest for; the first of those that are equal to three decimals. */
function best(values, score) {
  return values.reduce((found, value) => (Number(score(value).toFixed(3)) > Number(score(found).toFixed(3)) ? value : found));
}

/** The model that the page opens on. It is trained, has BOS and a fitted law, and a sequence after which soft matching is nearer
 * to the truth than the unigram and the hard counter (of all models, if there is none). Of those it is the one whose least
 * sharp copy head puts the most attention on its lag at the last query: there the arrows show the copies. */
function startModel() {
  const clear = DATA.models.filter((one) => one.trained && one.config.bos && one.fit_success && leadOf(one.name, startSequence(one.name)) > 0);
  return best(clear.length ? clear : DATA.models, (one) => Math.min(...one.copy_mass)).name;
}

/** By how many nats soft matching, with the betas of a model, is nearer to the truth than the unigram and the hard counter. */
function leadOf(name, place) {
  const {sequences, config: {vocab, order}} = MODELS.get(name), {tokens, laws} = sequences[place], last = tokens.length - 1;
  const far = (found) => klDivergence(laws[last], found);
  return Math.min(far(unigram(tokens, last, {vocab, order})), far(hardMatching(tokens, last, {vocab, order})))
    - far(softMatching(tokens, last, {vocab, ...lawOf(name)}).law);
}

function lawOf(name) {
  const chosen = MODELS.get(name), {order, bos} = chosen.config;
  return {beta: chosen.beta ? [...chosen.beta] : new Array(order).fill(DATA.start.beta), kappa: bos ? (chosen.kappa ?? DATA.start.kappa) : null};
}

/** The sequence that a model starts with: that with the largest lead of soft matching. */
function startSequence(name) {
  return best([...MODELS.get(name).sequences.keys()], (place) => leadOf(name, place));
}

function startOf(name, sequence = startSequence(name)) {
  const chosen = MODELS.get(name);
  return {model: name, sequence, tokens: [...chosen.sequences[sequence].tokens], query: chosen.config.length - 1, ...lawOf(name), alpha: 1, symbol: null};
}

// --- a state as the part of an address after #, and back -----------------------------------------------------------

function toHash(one) {
  const parts = {m: one.model, s: one.sequence, q: one.query, b: one.beta.join(","), k: one.kappa ?? "none", a: one.alpha};
  const original = MODELS.get(one.model).sequences[one.sequence].tokens;
  if (one.symbol !== null) parts.n = letter(one.symbol);
  if (one.tokens.some((token, place) => token !== original[place])) parts.x = one.tokens.map(letter).join("");
  return `#${new URLSearchParams(parts)}`;
}

/** The state that an address asks for; what it does not say, or says wrongly, is left at its start. */
function fromHash(text) {
  const given = new URLSearchParams(text.slice(1));
  const name = MODELS.has(given.get("m")) ? given.get("m") : startModel();
  const chosen = MODELS.get(name), {length, vocab, order, bos} = chosen.config;
  const one = startOf(name, whole(given.get("s"), chosen.sequences.length) ?? undefined);
  one.query = whole(given.get("q"), length) ?? one.query;
  const beta = (given.get("b") || "").split(",").map(parsed);
  if (beta.length === order && !beta.includes(null)) one.beta = beta;
  if (bos) one.kappa = parsed(given.get("k")) ?? one.kappa;
  const alpha = parsed(given.get("a"));
  if (alpha > 0) one.alpha = alpha;
  const symbols = (word) => [...(word || "")].map((each) => each.charCodeAt(0) - 97);
  const known = (all) => all.every((symbol) => symbol >= 0 && symbol < vocab);
  const tokens = symbols(given.get("x")), [symbol] = symbols(given.get("n"));
  if (tokens.length === length && known(tokens)) one.tokens = tokens;
  if (symbol !== undefined && known([symbol])) one.symbol = symbol;
  return one;
}

function whole(text, end) {
  const value = Number(text);
  return text && Number.isInteger(value) && value >= 0 && value < end ? value : null;
}

/** A parameter that someone wrote, or null. */
function parsed(text) {
  return text?.trim() && Math.abs(Number(text)) <= MOST ? Number(text) : null;
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
  const {vocab, order} = shape(), prior = row().prior, seen = [state.tokens, t, {vocab, order}];
  const laws = [
    ["model", "the model", modelOutput().laws[t]],
    ["law", "soft matching, beta and kappa as set", softMatching(state.tokens, t, {vocab, ...state}).law],
    ["unigram", "its limit: unigram, beta = 0, no BOS", unigram(...seen)],
    ["hard", "its limit: hard matching, equal betas to infinity, no BOS", hardMatching(...seen)],
    ["add_alpha", `its limit with BOS: add-alpha, alpha = ${state.alpha.toFixed(2)}`, addAlpha(...seen, state.alpha)],
    ["uniform", "its limit: uniform, kappa to infinity", uniform(vocab)],
    ["maximum_likelihood", "maximum likelihood; uniform where the context is new", maximumLikelihood(...seen)],
    ["katz", "Katz back-off: the longest suffix seen", katz(...seen)],
  ];
  if (prior.kind === "independent") laws.push(["bayes", "Bayes: add-alpha at the prior's alpha", addAlpha(...seen, prior.alpha)]);
  else laws.push(["bayes", "Bayes, stored", known && last ? drawn().bayes : null]);
  laws.push(["truth", "the truth", known ? drawn().laws[t] : null]);
  return laws;
}

/** KL to the truth after the last token of each stored sequence, the mean of each estimator; of the model it is kept. */
function meansOf() {
  const {vocab, order} = shape(), model = row();
  const estimators = {
    law: (tokens, last) => softMatching(tokens, last, {vocab, ...state}).law,
    unigram: (tokens, last) => unigram(tokens, last, {vocab, order}),
    hard: (tokens, last) => hardMatching(tokens, last, {vocab, order}),
    add_alpha: (tokens, last) => addAlpha(tokens, last, {vocab, order}, state.alpha),
    uniform: () => uniform(vocab),
    maximum_likelihood: (tokens, last) => maximumLikelihood(tokens, last, {vocab, order}),
    katz: (tokens, last) => katz(tokens, last, {vocab, order}),
  };
  if (!modelMeans.has(state.model)) modelMeans.set(state.model, meanKl(model, (tokens, last) => forward(loaded.get(state.model), tokens).laws[last]));
  return {model: modelMeans.get(state.model), ...Object.fromEntries(Object.entries(estimators).map(([name, after]) => [name, meanKl(model, after)]))};
}

function meanKl({sequences}, after) {
  return sequences.reduce((sum, {tokens, laws}) => sum + klDivergence(laws.at(-1), after(tokens, tokens.length - 1)), 0) / sequences.length;
}

function panels(laws = allLaws()) {
  const t = query(), {vocab, order, bos} = row().config, offset = bos ? 1 : 0;
  const output = modelOutput(), law = softMatching(state.tokens, t, {vocab, ...state});
  const kinds = matchMasks(state.tokens, t, order).map((mask) => kindOf(mask, order));
  if (bos) kinds.unshift("bos");
  const known = new Map(laws.map(([key, , value]) => [key, value]));
  const common = {tokens: state.tokens, query: t, vocab, offset, kinds, truth: known.get("truth"), bayes: known.get("bayes"),
    width: panelWidth, focus: focus !== null && focus <= t + offset ? focus : null};
  const model = {...common, copies: output.copies, lags: row().copy_lag, weights: output.match[t + offset], prediction: output.laws[t]};
  const exact = {...common, copies: exactCopies(order, offset), lags: state.beta.map((_, head) => head + 1), prediction: law.law,
    weights: bos ? [law.bos, ...law.keys] : law.keys};
  const scale = Math.max(...model.weights, ...exact.weights, 0.05);
  return [[model, exact], [exact, model]].map(([view, other]) => ({...view, other, scale, ...votesOf(view), words: panelWords(view)}));
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

// --- what is shown -------------------------------------------------------------------------------------------------

function render() {
  const laws = allLaws(), [model, law] = panels(laws), numbers = termsOf();
  const symbol = state.symbol ?? numbers.law.indexOf(Math.max(...numbers.law));
  const said = {"model-words": massWords(model), "law-words": massWords(law), gap: gapWords(model, law), "key-words": focusWords(model, law),
    "copy-words": copyWords(model), "readout-words": readoutWords(model), "truth-note": noteWords(), formula: formulaWords(numbers, symbol)};
  Object.entries(said).forEach(([id, text]) => { if (element(id).textContent !== text) element(id).textContent = text; });
  drawPanel(element("model-picture"), model);
  drawPanel(element("law-picture"), law);
  element("counts").replaceChildren(...countsTable(numbers, symbol));
  renderStrip(model.kinds);
  renderTable(laws);
  renderControls();
}

function renderStrip(kinds) {
  const t = query(), offset = row().config.bos ? 1 : 0, strip = element("strip"), original = drawn().tokens;
  if (strip.children.length !== state.tokens.length)
    strip.replaceChildren(...state.tokens.map((_, place) => make("button", {type: "button", "data-place": place})));
  [...strip.children].forEach((button, place) => {
    const kind = place > t ? "later" : kinds[place + offset], name = letter(state.tokens[place]);
    const changed = state.tokens[place] !== original[place];
    button.className = `${kind}${place === t ? " query" : ""}${changed ? " edited" : ""}`;
    button.replaceChildren(name, make("small", {}, place + 1));
    const what = place === t ? "the query" : place > t ? "after the query" : KIND_NAMES[kind];
    button.setAttribute("aria-label", `position ${place + 1}: ${name}, ${what}${changed ? ", changed" : ""}`);
    button.tabIndex = place === t ? 0 : -1;
  });
}

function renderTable(laws) {
  const truth = laws.find(([key]) => key === "truth")[2], mine = laws.find(([key]) => key === "law")[2];
  const symbols = Array.from({length: shape().vocab}, (_, symbol) => letter(symbol));
  const means = meansOf();
  const cells = (law) => law.map((value) => make("td", {"data-value": value}, value.toFixed(4)));
  const lines = laws.map(([key, name, law]) => make("tr", {"data-law": key}, make("th", {scope: "row"}, name),
    make("td", {class: "tv"}, law ? totalVariation(law, mine).toFixed(4) : "-"),
    make("td", {}, law && truth ? klDivergence(truth, law).toFixed(4) : "-"),
    make("td", {class: "mean"}, key in means ? means[key].toFixed(4) : "-"),
    law ? cells(law) : make("td", {colspan: symbols.length}, "not known here")));
  const caption = `after position ${query() + 1}; where a distribution gives a symbol no mass, KL is taken with a floor of ${FLOOR}`;
  const names = ["estimator", "total variation to soft matching", "KL to the truth, nats", `mean KL, ${row().sequences.length} sequences`, ...symbols];
  element("laws").replaceChildren(make("caption", {class: "soft"}, make("span", {}, caption)), headLine(names), make("tbody", {}, lines));
}

function renderControls() {
  state.beta.forEach((value, place) => setSlider(`beta-${place + 1}`, value));
  if (state.kappa !== null) setSlider("kappa", state.kappa);
  setSlider("alpha", state.alpha);
  element("query").value = state.query + 1;
  element("query-value").textContent = query() + 1;
  element("symbol").value = state.symbol ?? "";
  if (element("text") !== typedInto) writeText();
}

/** The sequence as letters. */
function writeText() {
  element("text").value = state.tokens.map(letter).join("");
  element("text-said").textContent = "";
}

/** A slider shows every value: its scale grows to what was typed or came with a link. */
function setSlider(id, value) {
  const number = element(`${id}-value`), [low, high] = RANGES[id.replace(/-.*/, "")];
  element(id).min = Math.min(low, value);
  element(id).max = Math.max(high, value);
  element(id).value = value;
  element(id).setAttribute("aria-valuetext", value.toFixed(2));
  if (number !== typedInto) number.value = value.toFixed(2);
}

function slider(id, name, [low, high]) {
  return make("span", {class: "slider"}, make("label", {for: id}, name), make("input", {type: "range", id, min: low, max: high, step: "any"}),
    make("input", {type: "number", id: `${id}-value`, "aria-label": `${name}, as a number`, step: 0.01}));
}

/** What depends on the model alone. */
function renderModel() {
  const {length, vocab, order, bos} = row().config;
  const lags = Array.from({length: order}, (_, place) => place + 1);
  const sliders = lags.map((lag) => slider(`beta-${lag}`, `beta_${lag}`, RANGES.beta));
  element("sliders").replaceChildren(...sliders, ...(bos ? [slider("kappa", "kappa", RANGES.kappa)] : []));
  element("model").value = state.model;
  element("sequence").replaceChildren(...row().sequences.map((_, place) => make("option", {value: place}, place + 1)));
  element("sequence").value = state.sequence;
  const symbols = Array.from({length: vocab}, (_, symbol) => make("option", {value: symbol}, letter(symbol)));
  element("symbol").replaceChildren(make("option", {value: ""}, "most likely"), ...symbols);
  element("query").max = length;
  element("about").textContent = row().about;
  element("general").replaceChildren(...generalFormula());
  element("fitted").textContent = row().fit_success ? "this model's fit" : "start values";
  for (const id of ["add-alpha", "even"]) element(id).hidden = !bos;
  element("strip").replaceChildren();
}

// --- what changes it -----------------------------------------------------------------------------------------------

function change(part) {
  Object.assign(state, part);
  clearTimeout(addressed);
  addressed = setTimeout(writeAddress, ADDRESS_PAUSE);
  render();
}

function writeAddress() {
  clearTimeout(addressed);
  history.replaceState(null, "", toHash(state));
}

function restart(one) {
  state = one;
  hovered = focus = editedAt = null;
  renderModel();
  change({});
}

/** Another model; on the same sequence, with its changes and its query, where the new model has it. */
function chooseModel(name) {
  const old = drawn().tokens.join(), {sequence, tokens, query: kept, alpha} = state;
  const same = MODELS.get(name).sequences[sequence]?.tokens.join() === old;
  restart({...startOf(name), alpha, ...(same ? {sequence, tokens, query: kept} : {})});
}

/** Sliders at, or nearly at, a limit of the law. */
const LIMITS = {
  fitted: () => lawOf(state.model),
  unigram: () => ({beta: state.beta.map(() => 0), kappa: RANGES.kappa[0]}),
  hard: () => ({beta: state.beta.map(() => RANGES.beta[1]), kappa: RANGES.kappa[0]}),
  "add-alpha": () => ({beta: state.beta.map(() => RANGES.beta[1]), kappa: state.beta.length * RANGES.beta[1] + Math.log(state.alpha * shape().vocab)}),
  even: () => ({beta: lawOf(state.model).beta, kappa: RANGES.kappa[1]}),
};

/** Another token; what the edit does to the kept query is seen at once. */
function setToken(place, symbol) {
  hovered = null;
  editedAt = place;
  change({tokens: state.tokens.map((token, other) => (other === place ? symbol : token))});
}

/** A whole sequence, typed as letters; other signs between them do not count. */
function onText({target}) {
  const {length, vocab} = row().config, typed = [...target.value.toLowerCase()].filter((sign) => /[a-z]/.test(sign));
  const tokens = typed.map((sign) => sign.charCodeAt(0) - 97), last = letter(vocab - 1);
  const wrong = tokens.some((token) => token >= vocab) ? `letters a to ${last} only` : tokens.length !== length ? `${tokens.length} of ${length} letters` : "";
  typedInto = target;
  element("text-said").textContent = wrong;
  hovered = null;
  if (!wrong) change({tokens});
}

function onSlider({target}) {
  const id = target.id.replace("-value", ""), value = parsed(target.value);
  typedInto = target;
  if (value === null || (id === "alpha" && value <= 0)) return;
  if (id === "kappa" || id === "alpha") change({[id]: value});
  else change({beta: state.beta.map((old, place) => (id === `beta-${place + 1}` ? value : old))});
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
  if (event.ctrlKey || event.metaKey || event.altKey) return;
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
  if (place !== null && place === editedAt) return;
  editedAt = null;
  if (hovered === place) return;
  hovered = place;
  focus = null;
  render();
}

function follow(key) {
  if (key === focus) return;
  focus = key;
  render();
}

/** In a picture that has the focus, arrow keys go from key to key. */
function onPictureKey(event) {
  const last = query() + (row().config.bos ? 1 : 0), from = focus ?? last + 1;
  const next = {ArrowLeft: Math.max(from - 1, 0), ArrowRight: Math.min(from + 1, last), Home: 0, End: last, Escape: null}[event.key];
  if (next === undefined) return;
  follow(next);
  event.preventDefault();
}

function fillLists() {
  const option = (name) => make("option", {value: name}, MODELS.get(name).label);
  element("model").append(...DATA.groups.map((group) => make("optgroup", {label: group.name}, group.models.map(option))));
  element("alpha-place").append(slider("alpha", "alpha of add-alpha", RANGES.alpha));
  const mark = (name, style) => make("span", {class: name, style});
  const line = (colour, kind = "solid") => mark("line", {borderColor: `var(--${colour})`, borderTopStyle: kind});
  const entries = KINDS.map((kind) => [mark(null, {background: kind === "early" ? "transparent" : `var(--${kind})`}), KIND_NAMES[kind]]);
  entries.push([line("head-1"), "copies of lag 1"], [line("head-2"), "copies of lag 2"], [line("ink"), "truth"], [line("ink", "dashed"), "Bayes"],
    [mark("diamond", {background: "var(--mark)"}), "prediction"],
    [mark("line thin", {}), mark("diamond", {border: "2px solid var(--mark)"}), "the other panel's"]);
  element("legend").append(...entries.map((parts) => make("li", {}, parts)));
}

function listen() {
  const strip = element("strip");
  element("model").addEventListener("change", ({target}) => chooseModel(target.value));
  element("sequence").addEventListener("change", ({target}) => restart({...startOf(state.model, Number(target.value)), beta: state.beta, kappa: state.kappa, alpha: state.alpha}));
  element("query").addEventListener("input", ({target}) => { hovered = null; change({query: Number(target.value) - 1}); });
  element("symbol").addEventListener("change", ({target}) => change({symbol: target.value === "" ? null : Number(target.value)}));
  for (const id of ["sliders", "alpha-place"]) {
    element(id).addEventListener("input", onSlider);
    element(id).addEventListener("change", () => { typedInto = null; renderControls(); });
  }
  for (const [id, limit] of Object.entries(LIMITS))
    element(id).addEventListener("click", () => change({...limit(), ...(row().config.bos ? {} : {kappa: null})}));
  element("reset-tokens").addEventListener("click", () => change({tokens: [...drawn().tokens]}));
  element("copy-link").addEventListener("click", copyLink);
  element("text").addEventListener("input", onText);
  element("text").addEventListener("change", () => { typedInto = null; writeText(); });
  element("save-svg").addEventListener("click", () => save("svg"));
  element("save-png").addEventListener("click", () => save("png"));
  strip.addEventListener("pointerover", (event) => { if (placeOf(event) !== null) lookAt(placeOf(event)); });
  strip.addEventListener("pointerleave", () => lookAt(null));
  strip.addEventListener("focusin", (event) => { if (placeOf(event) !== null) lookAt(placeOf(event)); });
  strip.addEventListener("focusout", () => lookAt(null));
  strip.addEventListener("pointerdown", (event) => { touched = event.pointerType === "touch"; });
  strip.addEventListener("click", onToken);
  strip.addEventListener("keydown", onKey);
  for (const picture of document.querySelectorAll(".picture")) {
    picture.addEventListener("pointerover", ({target}) => { const key = target.closest("[data-key]"); follow(key ? Number(key.dataset.key) : null); });
    picture.addEventListener("pointerleave", () => follow(null));
    picture.addEventListener("keydown", onPictureKey);
    picture.addEventListener("focusout", () => follow(null));
  }
  window.addEventListener("hashchange", () => restart(fromHash(location.hash)));
  new ResizeObserver(([picture]) => {
    panelWidth = picture.contentRect.width || panelWidth;
    render();
  }).observe(document.querySelector(".picture"));
}

async function copyLink() {
  writeAddress();
  try {
    await navigator.clipboard.writeText(location.href);
    element("link-said").textContent = "copied";
  } catch {
    element("link-said").textContent = "the address of this page is the link";
  }
}

fillLists();
restart(fromHash(location.hash));
listen();
