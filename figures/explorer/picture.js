"use strict";
// One panel: tokens with the copies that the query (and a key that is pointed at) fetches, the match attention, the votes
// and the law they add up to. It draws what it is given: {tokens, query, vocab, offset, copies, lags, weights,
// kinds, votes, votesByKind, prediction, truth, bayes, scale, focus}. Positions count BOS, where there is one, as 0.

const LEFT = 44, RIGHT = 652, WIDTH = 660, HEIGHT = 430;
const TOKEN_TOP = 78, TOKEN_SIDE = 17, BARS_BASE = 186, BARS_HIGH = 66, FLOW_TOP = 196, FLOW_END = 296;
const LAW_BASE = 414, LAW_HIGH = 84, VOTE_WIDTH = 120;

function letter(symbol) {
  return String.fromCharCode(97 + symbol);
}

function drawPanel(svg, view) {
  const count = view.tokens.length + view.offset;
  const pitch = Math.min((RIGHT - LEFT) / count, 26);
  const at = (position) => LEFT + (position + 0.5) * pitch;
  const parts = [
    drawCopies(view, at), drawTokens(view, at, pitch), drawBars(view, at, pitch), drawFlows(view, at), drawLaw(view),
    label(10, "copies", TOKEN_TOP - 42), label(10, "attention", BARS_BASE - BARS_HIGH - 4), label(10, "votes", FLOW_TOP + 30),
    label(10, "law", LAW_BASE - LAW_HIGH),
  ];
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("aria-label", view.words);
  svg.innerHTML = parts.join("");
}

function label(x, text, y) {
  return `<text class="quiet" x="${x}" y="${y}" font-size="10" transform="rotate(-90 ${x} ${y})" text-anchor="end">${text}</text>`;
}

function drawCopies(view, at) {
  const shown = [view.query + view.offset];
  if (view.focus !== null && view.focus >= view.offset) shown.push(view.focus);
  return shown.flatMap((target) => view.copies.flatMap((pattern, head) => pattern[target].map((weight, source) => {
    if (weight < 0.02) return "";
    const from = at(source), to = at(target), high = TOKEN_TOP - 10 - Math.min(60, 10 + Math.abs(to - from) * 0.6);
    const text = `head (0, ${head}), which copies lag ${view.lags[head]}, at position ${target} attends ${weight.toFixed(3)} to position ${source}`;
    return `<path d="M${from} ${TOKEN_TOP}C${from} ${high} ${to} ${high} ${to} ${TOKEN_TOP}" fill="none" stroke-width="${(5 * weight).toFixed(2)}" stroke="var(--head-${(view.lags[head] - 1) % 2 + 1})"><title>${text}</title></path>`;
  }))).join("");
}

function drawTokens(view, at, pitch) {
  const side = Math.min(TOKEN_SIDE, pitch - 1);
  return Array.from({length: view.tokens.length + view.offset}, (_, position) => {
    const isQuery = position === view.query + view.offset, later = position > view.query + view.offset;
    const name = position < view.offset ? "^" : letter(view.tokens[position - view.offset]);
    const fill = isQuery ? "var(--ink)" : "var(--paper)", ink = isQuery ? "var(--paper)" : "var(--ink)";
    return `<g data-key="${position}"${later ? ' opacity="0.35"' : ""}><rect x="${at(position) - side / 2}" y="${TOKEN_TOP + 2}" width="${side}" height="${TOKEN_SIDE}" rx="2" fill="${fill}" stroke="${kindColour(view.kinds[position] || "later")}" stroke-width="1.5"/><text x="${at(position)}" y="${TOKEN_TOP + 15}" text-anchor="middle" style="fill:${ink};font-size:${Math.min(12, pitch + 1)}px">${name}</text></g>`;
  }).join("");
}

function kindColour(kind) {
  return {full: "var(--full)", partial: "var(--partial)", none: "var(--none)", bos: "var(--bos)"}[kind] || "var(--early-line)";
}

function drawBars(view, at, pitch) {
  const tick = `<line x1="${LEFT}" x2="${RIGHT}" y1="${BARS_BASE}" y2="${BARS_BASE}" stroke="var(--line)"/><text class="quiet" x="${LEFT - 4}" y="${BARS_BASE - BARS_HIGH + 4}" text-anchor="end" style="font-size:9px">${view.scale.toFixed(2)}</text>`;
  return tick + view.weights.map((weight, position) => {
    const high = Math.max(weight / view.scale * BARS_HIGH, 0);
    return `<g data-key="${position}" class="${dimmed(view, position)}"><rect x="${at(position) - pitch / 2}" y="${TOKEN_TOP}" width="${pitch}" height="${BARS_BASE - TOKEN_TOP + 8}" fill="transparent"/><rect x="${at(position) - pitch * 0.4}" y="${BARS_BASE - high}" width="${pitch * 0.8}" height="${high}" fill="${kindColour(view.kinds[position])}"><title>${keyWords(view, position)}</title></rect></g>`;
  }).join("");
}

function dimmed(view, position) {
  return view.focus !== null && view.focus !== position ? "dim" : "";
}

function keyWords(view, position) {
  const kind = view.kinds[position];
  const name = kind === "bos" ? "BOS" : `position ${position}, token ${letter(view.tokens[position - view.offset])}, ${KIND_NAMES[kind]}`;
  return `${name}: attention ${view.weights[position].toFixed(4)}`;
}

function symbolPlace(symbol, vocab) {
  return 90 + (symbol + 0.5) * 520 / vocab;
}

/** A band from each key to the symbols that it votes for, as wide as its attention; together they fill the symbol. */
function drawFlows(view, at) {
  const filled = view.votes.map((share, symbol) => symbolPlace(symbol, view.vocab) - share * VOTE_WIDTH / 2);
  return view.weights.map((weight, position) => {
    const isBos = view.kinds[position] === "bos";
    const symbols = isBos ? view.votes.map((_, symbol) => symbol) : [view.tokens[position - view.offset]];
    const half = weight * VOTE_WIDTH / 2, middle = Math.min(Math.max(at(position), LEFT + half), RIGHT - half);  // inside
    return symbols.map((symbol, place) => {
      const wide = weight / symbols.length * VOTE_WIDTH;
      const start = middle + (place - (symbols.length - 1) / 2) * wide, end = filled[symbol] + wide / 2;
      filled[symbol] += wide;
      if (wide < 0.05) return "";
      const bend = (FLOW_TOP + FLOW_END) / 2;
      return `<path class="${dimmed(view, position)}" d="M${start} ${FLOW_TOP}C${start} ${bend} ${end} ${bend} ${end} ${FLOW_END}" fill="none" stroke="${kindColour(view.kinds[position])}" stroke-opacity="0.85" stroke-width="${wide.toFixed(2)}"/>`;
    }).join("");
  }).join("");
}

/** Votes stacked by the kind of key, the prediction as a red diamond, the true law as a line, Bayes's as a dashed one. */
function drawLaw(view) {
  const most = Math.max(...view.votes, ...view.prediction, ...(view.truth || [0]), ...(view.bayes || [0]), 0.3);
  const high = (value) => value / most * LAW_HIGH;
  return view.votes.map((_, symbol) => {
    const x = symbolPlace(symbol, view.vocab);
    let base = LAW_BASE;
    const stack = KINDS.map((kind) => {
      const share = view.votesByKind[kind][symbol], tall = high(share);
      base -= tall;
      return share > 0 ? `<rect x="${x - 22}" width="44" y="${base}" height="${tall}" fill="${kindColour(kind)}"/>` : "";
    }).join("");
    const line = (value, dash) => `<line x1="${x - 28}" x2="${x + 28}" y1="${LAW_BASE - high(value)}" y2="${LAW_BASE - high(value)}" stroke="var(--ink)" stroke-width="2" ${dash}/>`;
    const y = LAW_BASE - high(view.prediction[symbol]);
    return `${stack}${view.truth ? line(view.truth[symbol], "") : ""}${view.bayes ? line(view.bayes[symbol], 'stroke-dasharray="4 3"') : ""}<path d="M${x - 6} ${y}l6 -6l6 6l-6 6z" fill="var(--mark)" stroke="var(--paper)"/><text x="${x + 31}" y="${y + 4}">${view.prediction[symbol].toFixed(3)}</text><text x="${x}" y="${FLOW_END + 14}" text-anchor="middle" font-weight="bold">${letter(symbol)}</text>`;
  }).join("") + `<line x1="${LEFT}" x2="${RIGHT}" y1="${LAW_BASE}" y2="${LAW_BASE}" stroke="var(--line)"/>`;
}
