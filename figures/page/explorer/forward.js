"use strict";
// The forward pass of an InductionTransformer (interp/hooked/transformer.py) in float64: k copy heads, one match head,
// relative biases; with LayerNorm and MLP for the standard family. Matrices are {rows, cols, data}, row by row.

/** A model from its row of `python -m analyses explorer`: the config, and a function that gives a weight by name. */
function loadModel(row) {
  const tensors = new Map(row.tensors.map((tensor) => [tensor.name, unpacked(tensor)]));
  return {...row.config, get: (name) => tensors.get(name)};
}

function unpacked({shape, dtype, data}) {
  const size = shape.reduce((product, one) => product * one, 1);
  if (!data) return {shape, data: new Float64Array(size)};
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const kind = dtype === "float64" ? Float64Array : Float32Array;
  return {shape, data: Float64Array.from(new kind(bytes.buffer))};
}

/** Attention of every copy head and of the match head, [query][key] with BOS first, and the law after every position. */
function forward(model, tokens) {
  const ids = model.bos ? [model.vocab, ...tokens] : tokens;
  const embedding = model.get("embed.W_E");
  const width = embedding.shape[1];
  let stream = ids.map((id) => embedding.data.slice(id * width, (id + 1) * width));
  const patterns = [];
  for (const block of ["blocks.0", "blocks.1"]) {
    const read = stream.map((row) => layerNorm(model, `${block}.ln1`, row));
    const {pattern, output} = attend(model, `${block}.attn`, read);
    patterns.push(pattern);
    stream = stream.map((row, place) => plus(row, output[place]));
    if (model.get(`${block}.mlp.W_in`))
      stream = stream.map((row) => plus(row, mlp(model, `${block}.mlp`, layerNorm(model, `${block}.ln2`, row))));
  }
  const laws = stream.map((row) => readout(model, layerNorm(model, "ln_final", row)));
  return {copies: patterns[0], match: patterns[1][0], laws: model.bos ? laws.slice(1) : laws};
}

function attend(model, name, read) {
  const [heads, , size] = model.get(`${name}.W_Q`).shape;
  const bias = model.get(`${name}.rel_bias`);
  const scale = model.d_model === null ? 1 : Math.sqrt(size);
  const output = read.map(() => Float64Array.from(model.get(`${name}.b_O`).data));
  const pattern = [];
  for (let head = 0; head < heads; head++) {
    const [queries, keys, values] = ["Q", "K", "V"].map(
      (letter) => read.map((row) => affine(row, model.get(`${name}.W_${letter}`), model.get(`${name}.b_${letter}`), head)));
    pattern.push(queries.map((query, place) => softmax(keys.slice(0, place + 1).map(
      (key, at) => dot(query, key) / scale + bias.data[head * bias.shape[1] + place - at]))));
    pattern[head].forEach((weights, place) => {
      const mixed = new Float64Array(size);
      weights.forEach((weight, at) => values[at].forEach((value, i) => { mixed[i] += weight * value; }));
      const written = affine(mixed, model.get(`${name}.W_O`), null, head);
      written.forEach((value, i) => { output[place][i] += value; });
    });
  }
  return {pattern, output};
}

/** row @ W[part] + b[part], for a weight of shape [part, in, out] or [in, out]. */
function affine(row, weight, bias, part = 0) {
  const [inside, outside] = weight.shape.slice(-2);
  const result = new Float64Array(outside);
  for (let i = 0; i < inside; i++) {
    const value = row[i], start = (part * inside + i) * outside;
    if (value !== 0) for (let j = 0; j < outside; j++) result[j] += value * weight.data[start + j];
  }
  if (bias) for (let j = 0; j < outside; j++) result[j] += bias.data[part * outside + j];
  return result;
}

function mlp(model, name, row) {
  const hidden = affine(row, model.get(`${name}.W_in`), model.get(`${name}.b_in`)).map(gelu);
  return affine(hidden, model.get(`${name}.W_out`), model.get(`${name}.b_out`));
}

function layerNorm(model, name, row) {
  const scale = model.get(`${name}.w`);
  if (!scale) return row;
  const mean = row.reduce((sum, value) => sum + value, 0) / row.length;
  const spread = Math.sqrt(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / row.length + 1e-5);
  return row.map((value, i) => (value - mean) / spread * scale.data[i] + model.get(`${name}.b`).data[i]);
}

function readout(model, row) {
  const read = affine(row, model.get("unembed.W_U"), model.get("unembed.b_U"));
  return model.readout === "logit" ? softmax([...read])
    : normalised([...read].map((value) => Math.max(value, 0) + model.floor));
}

function softmax(scores) {
  const top = Math.max(...scores);
  return normalised(scores.map((score) => Math.exp(score - top)));
}

function plus(one, other) {
  return one.map((value, i) => value + other[i]);
}

function dot(one, other) {
  let sum = 0;
  for (let i = 0; i < one.length; i++) sum += one[i] * other[i];
  return sum;
}

function gelu(x) {
  return x / 2 * (1 + erf(x / Math.SQRT2));
}

/** The error function: its series near zero, a continued fraction of the rest elsewhere. */
function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let term = x, sum = x;
    for (let n = 1; n < 60; n++) {
      term *= -x * x / n;
      sum += term / (2 * n + 1);
    }
    return 2 / Math.sqrt(Math.PI) * sum;
  }
  let tail = size;
  for (let n = 40; n >= 1; n--) tail = size + n / 2 / tail;
  return Math.sign(x) * (1 - Math.exp(-size * size) / Math.sqrt(Math.PI) / tail);
}
