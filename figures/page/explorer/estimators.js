"use strict";
// The estimators of the paper, as interp/estimators computes them. `tokens` is an array of symbols without BOS, `query`
// the index of the last token that is seen; a law is an array of |V| probabilities. Lag r sits at index r - 1.

/** The mask of every position up to the query: -1 for the first k, which are no candidates; bit r - 1 says lag r. */
function matchMasks(tokens, query, order) {
  const masks = [];
  for (let key = 0; key <= query; key++) {
    let mask = key < order ? -1 : 0;
    for (let lag = 1; key >= order && lag <= order; lag++)
      if (tokens[query - lag + 1] === tokens[key - lag]) mask |= 1 << (lag - 1);
    masks.push(mask);
  }
  return masks;
}

function overlap(mask) {
  let bits = 0;
  for (let rest = mask; rest > 0; rest >>= 1) bits += rest & 1;
  return bits;
}

/** What a key is to the query: full, partial or none for a candidate, early for the first k positions. */
function kindOf(mask, order) {
  if (mask < 0) return "early";
  return mask === (1 << order) - 1 ? "full" : mask ? "partial" : "none";
}

function maskWeight(mask, beta) {
  return beta.reduce((sum, value, place) => sum + (mask >> place & 1 ? value : 0), 0);
}

/** eq:transformer_estimator key by key: attention to BOS (0 without) and to each position, and the law they vote for. */
function softMatching(tokens, query, {vocab, beta, kappa}) {
  const scores = matchMasks(tokens, query, beta.length).map(
    (mask) => (mask < 0 ? -Infinity : maskWeight(mask, beta)));
  const bosScore = kappa === null ? -Infinity : kappa;
  const top = Math.max(bosScore, ...scores);
  if (top === -Infinity) return {bos: 0, keys: scores.map(() => 0), law: uniform(vocab), scores};
  const weights = scores.map((score) => Math.exp(score - top));
  const total = weights.reduce((sum, weight) => sum + weight, 0) + Math.exp(bosScore - top);
  const keys = weights.map((weight) => weight / total), bos = Math.exp(bosScore - top) / total;
  return {bos, keys, law: votes(tokens, keys, bos, vocab), scores};
}

/** Every key votes for its token with its attention, BOS for all symbols alike. */
function votes(tokens, keys, bos, vocab) {
  const law = new Array(vocab).fill(bos / vocab);
  keys.forEach((weight, key) => { law[tokens[key]] += weight; });
  return law;
}

/** The limit of equal betas that grow without bound, without BOS: the mean over the largest overlap that occurs. */
function hardMatching(tokens, query, {vocab, order}) {
  const sizes = matchMasks(tokens, query, order).map((mask) => (mask < 0 ? -1 : overlap(mask)));
  const most = Math.max(-1, ...sizes);
  return most < 0 ? uniform(vocab) : normalised(counted(tokens, sizes.map((size) => size === most), vocab));
}

/** The limit beta = 0 without BOS: every candidate votes alike. */
function unigram(tokens, query, {vocab, order}) {
  return normalised(counted(tokens, matchMasks(tokens, query, order).map((mask) => mask >= 0), vocab));
}

/** N_M(m) for every mask M, as [mask, counts]: full matches first. */
function maskCounts(tokens, query, {vocab, order}) {
  const masks = matchMasks(tokens, query, order);
  return Array.from({length: 1 << order}, (_, mask) => mask).sort((one, other) => overlap(other) - overlap(one) || one - other)
    .map((mask) => [mask, counted(tokens, masks.map((found) => found === mask), vocab)]);
}

function exactCounts(tokens, query, {vocab, order}) {
  return counted(tokens, matchMasks(tokens, query, order).map((mask) => mask === (1 << order) - 1), vocab);
}

function maximumLikelihood(tokens, query, shape) {
  return normalised(exactCounts(tokens, query, shape));
}

function addAlpha(tokens, query, shape, alpha) {
  return normalised(exactCounts(tokens, query, shape).map((count) => count + alpha));
}

/** Back-off: the model of the longest suffix of the context that has been seen. */
function katz(tokens, query, {vocab, order}) {
  const masks = matchMasks(tokens, query, order);
  for (let length = order; length >= 0; length--) {
    const suffix = (1 << length) - 1;
    const counts = counted(tokens, masks.map((mask) => mask >= 0 && (mask & suffix) === suffix), vocab);
    if (counts.some((count) => count > 0)) return normalised(counts);
  }
  return uniform(vocab);
}

function counted(tokens, chosen, vocab) {
  const counts = new Array(vocab).fill(0);
  chosen.forEach((yes, key) => { counts[tokens[key]] += yes ? 1 : 0; });
  return counts;
}

function uniform(vocab) {
  return new Array(vocab).fill(1 / vocab);
}

/** Shares of a whole; the uniform law where there is nothing. */
function normalised(values) {
  const total = values.reduce((sum, value) => sum + value, 0);
  return total > 0 ? values.map((value) => value / total) : uniform(values.length);
}

function totalVariation(one, other) {
  return one.reduce((sum, value, place) => sum + Math.abs(value - other[place]), 0) / 2;
}

const FLOOR = 1e-6;  // KL_FLOOR of interp.divergence

/** KL(truth || law) in nats, as interp.kl_divergence has it: a law that gives a possible symbol less is raised to the floor. */
function klDivergence(truth, law) {
  const needed = truth.some((p, place) => p > 0 && law[place] < FLOOR);
  const raised = needed ? normalised(law.map((value) => Math.max(value, FLOOR))) : law;
  return truth.reduce((sum, p, place) => sum + (p > 0 ? p * Math.log(p / raised[place]) : 0), 0);
}
