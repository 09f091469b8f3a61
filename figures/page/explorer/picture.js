"use strict";
// One panel: tokens with the copies that the query (and a key that is pointed at) fetches, the match attention, the votes
// and the law they add up to. It draws what it is given: {tokens, query, vocab, offset, copies, lags, weights, kinds,
// votes, votesByKind, prediction, truth, bayes, scale, focus, other, width}, where `other` is the other panel's {weights,
// prediction}. Positions count BOS, where there is one, as 0. One unit is one pixel.

const LEFT = 44, MARGIN = 8, HEIGHT = 426;
const TOKEN_TOP = 74, TOKEN_SIDE = 17, LEAST_PITCH_OF_LETTERS = 7, BARS_BASE = 178, BARS_HIGH = 64, FLOW_TOP = 186, FLOW_END = 280;
const LAW_BASE = 400, LAW_HIGH = 84, VOTE_WIDTH = 120;
const LEAST_ARROW = 0.02;  // attention of a copy head that is drawn

function letter(symbol) {
  return String.fromCharCode(97 + symbol);
}

function drawPanel(svg, view) {
  const {width} = view, right = width - MARGIN;
  const pitch = Math.min((right - LEFT) / (view.tokens.length + view.offset), 26), step = (right - LEFT) / view.vocab;
  const place = {right, pitch, step, at: (position) => LEFT + (position + 0.5) * pitch, symbolAt: (symbol) => LEFT + (symbol + 0.5) * step};
  const parts = [
    drawCopies(view, place), drawTokens(view, place), drawBars(view, place), drawFlows(view, place), drawLaw(view, place),
    label("copies", TOKEN_TOP - 20), label("attention", BARS_BASE - BARS_HIGH / 2), label("votes", (FLOW_TOP + FLOW_END) / 2),
    label("prediction", LAW_BASE - LAW_HIGH / 2),
  ];
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("aria-label", view.words);
  svg.replaceChildren(...parts.flat());
}

function label(text, y) {
  return draw("text", {class: "quiet", x: 11, y, transform: `rotate(-90 11 ${y})`, "text-anchor": "middle"}, text);
}

function drawCopies(view, {at}) {
  const shown = [view.query + view.offset];
  if (view.focus !== null && view.focus >= view.offset && view.focus !== shown[0]) shown.push(view.focus);
  return shown.flatMap((target) => view.copies.flatMap((pattern, head) => pattern[target].flatMap((weight, source) => {
    if (weight < LEAST_ARROW) return [];
    const from = at(source), to = at(target), high = TOKEN_TOP - 10 - 9 * head - Math.min(56, 10 + Math.abs(to - from) * 0.6);  // apart, where heads agree
    const text = `copy head (0, ${head}) of lag ${view.lags[head]}: ${positionName(view, target)} attends ${weight.toFixed(3)} to ${positionName(view, source)}`;
    return draw("path", {d: `M${from} ${TOKEN_TOP}C${from} ${high} ${to} ${high} ${to} ${TOKEN_TOP}`, fill: "none",
      "stroke-width": (5 * weight).toFixed(2), stroke: `var(--head-${(view.lags[head] - 1) % 2 + 1})`}, draw("title", {}, text));
  })));
}

/** The tokens, each in the colour of its kind; where they lie too close, without letters, which the strip has. */
function drawTokens(view, {at, pitch}) {
  const side = Math.min(TOKEN_SIDE, pitch - 1), size = Math.min(12, pitch + 1);
  return Array.from({length: view.tokens.length + view.offset}, (_, position) => {
    const isQuery = position === view.query + view.offset, later = position > view.query + view.offset;
    const name = position < view.offset ? "^" : letter(view.tokens[position - view.offset]);
    const fill = isQuery ? "var(--ink)" : "var(--paper)", ink = isQuery ? "var(--paper)" : "var(--ink)";
    const box = draw("rect", {x: at(position) - side / 2, y: TOKEN_TOP + 2, width: side, height: TOKEN_SIDE, rx: 2, fill,
      stroke: kindColour(view.kinds[position]), "stroke-width": 1.5});
    const text = draw("text", {x: at(position), y: TOKEN_TOP + 15, "text-anchor": "middle", style: {fill: ink, fontSize: `${size}px`}}, name);
    return draw("g", {opacity: later ? 0.35 : null}, pitch < LEAST_PITCH_OF_LETTERS ? box : [box, text]);
  });
}

function kindColour(kind) {
  return {full: "var(--full)", partial: "var(--partial)", none: "var(--none)", bos: "var(--bos)"}[kind] || "var(--early-line)";
}

/** Keys that are too early to match have no fill. */
function kindFill(kind) {
  return kind === "early" ? {fill: "var(--paper)", stroke: "var(--early-line)"} : {fill: kindColour(kind)};
}

/** Attention as bars; where the other panel's differs by a pixel or more, a tick says what it is. */
function drawBars(view, {at, pitch, right}) {
  const high = (weight) => weight / view.scale * BARS_HIGH;
  const tick = (weight, position) => {
    const tall = high(view.other.weights[position]), y = BARS_BASE - tall;
    return Math.abs(tall - high(weight)) < 1 ? [] : draw("line", {class: "other", x1: at(position) - pitch * 0.48,
      x2: at(position) + pitch * 0.48, y1: y, y2: y, stroke: "var(--ink)", "stroke-width": 2});
  };
  const bars = view.weights.map((weight, position) => draw("g", {"data-key": position, class: dimmed(view, position)},
    draw("rect", {x: at(position) - pitch / 2, y: TOKEN_TOP, width: pitch, height: BARS_BASE - TOKEN_TOP + 8, fill: "transparent"}),
    draw("rect", {class: "bar", x: at(position) - pitch * 0.4, y: BARS_BASE - high(weight), width: pitch * 0.8, height: high(weight),
      ...kindFill(view.kinds[position])}, draw("title", {}, keyWords(view, position))),
    tick(weight, position)));
  return [baseLine(BARS_BASE, right), draw("text", {class: "quiet", x: LEFT - 4, y: BARS_BASE - BARS_HIGH + 4, "text-anchor": "end"},
    view.scale.toFixed(2)), ...bars];
}

function baseLine(y, right) {
  return draw("line", {x1: LEFT, x2: right, y1: y, y2: y, stroke: "var(--line)"});
}

function dimmed(view, position) {
  return view.focus !== null && view.focus !== position ? "dim" : "";
}

/** A band from each key to the symbols that it votes for, as wide as its attention; together they fill the symbol. */
function drawFlows(view, {at, right, symbolAt}) {
  const inside = (middle, wide) => Math.min(Math.max(middle - wide / 2, LEFT), right - wide), bend = (FLOW_TOP + FLOW_END) / 2;
  const filled = view.votes.map((share, symbol) => inside(symbolAt(symbol), share * VOTE_WIDTH));
  return view.weights.flatMap((weight, position) => {
    const isBos = view.kinds[position] === "bos", colour = kindColour(view.kinds[position]);
    const symbols = isBos ? view.votes.map((_, symbol) => symbol) : [view.tokens[position - view.offset]];
    const first = inside(at(position), weight * VOTE_WIDTH), wide = weight / symbols.length * VOTE_WIDTH;
    return symbols.flatMap((symbol, place) => {
      const start = first + place * wide, end = filled[symbol];
      filled[symbol] += wide;
      if (wide < 0.05) return [];
      return draw("path", {class: `ribbon ${dimmed(view, position)}`, "data-from": start, "data-to": end, "data-wide": wide,
        d: `M${start} ${FLOW_TOP}C${start} ${bend} ${end} ${bend} ${end} ${FLOW_END}h${wide}C${end + wide} ${bend} ${start + wide} ${bend} ${start + wide} ${FLOW_TOP}z`,
        fill: colour, stroke: colour, opacity: 0.85, "stroke-width": 0.4});
    });
  });
}

/** Votes stacked by the kind of key, the prediction as a red diamond (hollow: the other panel's), the true law as a line,
 * Bayes's as a dashed one. */
function drawLaw(view, {right, step, symbolAt}) {
  const most = Math.max(...view.votes, ...view.prediction, ...view.other.prediction, ...(view.truth || [0]), ...(view.bayes || [0]), 0.3);
  const high = (value) => value / most * LAW_HIGH, wide = Math.min(44, step * 0.62), lineHalf = wide / 2 + 5;
  const symbols = view.votes.flatMap((_, symbol) => {
    const x = symbolAt(symbol);
    let base = LAW_BASE;
    const stack = KINDS.flatMap((kind) => {
      const share = view.votesByKind[kind][symbol], tall = high(share);
      base -= tall;
      return share > 0 ? draw("rect", {x: x - wide / 2, width: wide, y: base, height: tall, ...kindFill(kind)}) : [];
    });
    const line = (law, dash) => (law ? draw("line", {x1: x - lineHalf, x2: x + lineHalf, y1: LAW_BASE - high(law[symbol]),
      y2: LAW_BASE - high(law[symbol]), stroke: "var(--ink)", "stroke-width": 2, "stroke-dasharray": dash}) : []);
    const diamond = (law, look) => draw("path", {d: `M${x - 6} ${LAW_BASE - high(law[symbol])}l6 -6l6 6l-6 6z`, ...look});
    return [
      stack, line(view.truth, null), line(view.bayes, "4 3"),
      diamond(view.other.prediction, {class: "other", fill: "none", stroke: "var(--mark)", "stroke-width": 1.5}),
      diamond(view.prediction, {fill: "var(--mark)", stroke: "var(--paper)"}),
      draw("text", {x, y: LAW_BASE + 19, "text-anchor": "middle"}, view.prediction[symbol].toFixed(3)),
      draw("text", {x, y: FLOW_END + 14, "text-anchor": "middle", "font-weight": "bold"}, letter(symbol)),
    ].flat();
  });
  return [...symbols, baseLine(LAW_BASE, right)];
}
