"use strict";
// What the page says in words and numbers of the state that app.js holds.

const KINDS = ["full", "partial", "none", "bos", "early"];
const KIND_NAMES = {full: "full match", partial: "partial match", none: "no match", bos: "BOS", early: "too early to match"};

function maskName(mask, order) {
  return `{${Array.from({length: order}, (_, place) => place + 1).filter((lag) => mask >> (lag - 1) & 1).join(",")}}`;
}

function massesOf(weights, kinds) {
  const mass = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
  weights.forEach((weight, position) => { mass[kinds[position]] += weight; });
  return mass;
}

function massWords(view) {
  const mass = massesOf(view.weights, view.kinds), short = {...KIND_NAMES, partial: "partial", early: "too early"};
  return KINDS.filter((kind) => mass[kind] >= 0.0005).map((kind) => `${short[kind]} ${mass[kind].toFixed(3)}`).join(", ");
}

function panelWords(view) {
  const law = view.prediction.map((value, symbol) => `${letter(symbol)} ${value.toFixed(3)}`).join(", ");
  return `Attention of the query at position ${view.query + 1}: ${massWords(view)}. Prediction: ${law}.`;
}

/** A position, counted as the strip does. */
function positionName(view, position) {
  return position < view.offset ? "BOS" : `position ${position - view.offset + 1}`;
}

function keyWords(view, position) {
  const what = position < view.offset ? "" : `, token ${letter(view.tokens[position - view.offset])}, ${KIND_NAMES[view.kinds[position]]}`;
  return `${positionName(view, position)}${what}: attention ${view.weights[position].toFixed(4)}`;
}

function gapWords(model, law) {
  const gaps = ["weights", "prediction"].map((part) => totalVariation(model[part], law[part]).toFixed(3));
  return `Model against soft matching, total variation: attention ${gaps[0]}, prediction ${gaps[1]}.`;
}

function focusWords(model, law) {
  if (model.focus === null) return "Point at a bar to follow one key; or focus a picture and use the arrow keys.";
  const position = model.focus, mask = matchMasks(state.tokens, query(), shape().order)[position - model.offset];
  const lags = state.beta.map((_, place) => place + 1).filter((lag) => mask >= 0 && mask >> (lag - 1) & 1);
  const score = position < model.offset ? `kappa = ${state.kappa.toFixed(2)}` : mask < 0 ? "none, because fewer than k tokens precede it"
    : lags.length ? `${lags.map((lag) => `beta_${lag}`).join(" + ")} = ${maskWeight(mask, state.beta).toFixed(2)}` : "0";
  return `${keyWords(model, position)} in the model, ${law.weights[position].toFixed(4)} in soft matching; score there: ${score}.`;
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
  if (!heads.some(({own, bos}) => bos > own && bos >= LEAST_ARROW)) return said;
  const where = target === state.tokens.length + view.offset - 1 ? ", at the one query that its loss reads" : "";
  const law = row().fit_success ? " The match head makes up for it: its scores still follow soft matching, with the beta and kappa of this model." : "";
  return `${said} The arrows to BOS are no error of the picture: this model learned them${where}.${law}`;
}

/** How far the prediction is from what the votes add up to, where that shows. */
function readoutWords(view) {
  const gap = totalVariation(view.votes, view.prediction);
  return gap < 0.0005 ? "" : `The model's prediction is ${gap.toFixed(3)} (total variation) from its votes: what comes after its match head does more than add them.`;
}

function noteWords() {
  const notes = [];
  const out = row().prior.kind === "independent" ? "the truth is" : "the truth and the stored answer of Bayes are";
  if (edited()) notes.push(`The sequence was changed: it is no longer a draw from the chain, so ${out} left out.`);
  if (query() < state.tokens.length - 1)
    notes.push("Models are trained to predict after the last token only. At this earlier query the model need not follow soft matching, and a construction, whose biases are tied to the length, does not.");
  return notes.join(" ");
}

// --- soft matching in numbers --------------------------------------------------------------------------------------------

/** A number to four digits, short also where it is huge or tiny. */
function digits(value) {
  return value !== 0 && (value >= 1e5 || value < 1e-3) ? value.toExponential(3) : String(Number(value.toPrecision(4)));
}

/** The terms of eq:transformer_estimator: the keys of each mask, and BOS, whose one vote is shared by all symbols. */
function termsOf() {
  const {vocab, order} = shape(), law = softMatching(state.tokens, query(), {vocab, ...state});
  const masks = matchMasks(state.tokens, query(), order);
  const terms = maskCounts(state.tokens, query(), {vocab, order}).map(([mask, counts]) => ({
    mask, counts, name: `M = ${maskName(mask, order)}`, total: counts.reduce((sum, count) => sum + count, 0),
    weight: Math.exp(maskWeight(mask, state.beta)), share: law.keys.reduce((sum, weight, key) => sum + (masks[key] === mask ? weight : 0), 0)}));
  if (state.kappa !== null)
    terms.unshift({mask: "bos", counts: new Array(vocab).fill(1 / vocab), name: "BOS", total: 1, weight: Math.exp(state.kappa), share: law.bos});
  return {terms, law: law.law};
}

/** eq:transformer_estimator, as it reads with or without BOS. */
function generalFormula() {
  const weight = () => ["sum over M of e", make("sup", {}, "|beta|_M"), " N_M"], bos = state.kappa !== null;
  const prior = (rest) => (bos ? ["e", make("sup", {}, "kappa"), rest] : []);
  return ["T(x)(m) = ( ", ...prior(" / |V| + "), ...weight(), "(m) ) / ( ", ...prior(" + "), ...weight(), " )"];
}

/** The estimator with the numbers of the state, for one symbol. */
function formulaWords({terms, law}, symbol) {
  const start = `T(x)(${letter(symbol)}) = `;
  if (!terms.some((term) => term.total)) return `${start}1/${law.length}: no key can be compared yet, and there is no BOS.`;
  const sum = (votes) => terms.map((term) => `${digits(term.weight)}${votes(term)}`).join(" + ");
  const over = sum((term) => (term.mask === "bos" ? ` / ${law.length}` : ` × ${term.counts[symbol]}`));
  return `${start}(${over}) / (${sum((term) => (term.mask === "bos" ? "" : ` × ${term.total}`))}) = ${law[symbol].toFixed(4)}`;
}

function countsTable({terms, law}, symbol) {
  const cells = (values) => values.map((value, place) => make("td", {class: place === symbol ? "chosen" : null}, value));
  const lines = terms.map((term) => make("tr", {"data-mask": term.mask}, make("th", {scope: "row"}, term.name), make("td", {}, digits(term.weight)),
    cells(term.counts.map((count) => (term.mask === "bos" ? `1/${law.length}` : count))), make("td", {}, term.total), make("td", {}, term.share.toFixed(4))));
  const all = make("tr", {}, make("th", {scope: "row"}, "soft matching"), make("td"), cells(law.map((value) => value.toFixed(4))), make("td"), make("td"));
  return [headLine(["keys", "weight of each", ...law.map((_, place) => letter(place)), "all", "attention"]), make("tbody", {}, lines, all)];
}

function headLine(names) {
  return make("thead", {}, make("tr", {}, names.map((name) => make("th", {scope: "col"}, name))));
}
