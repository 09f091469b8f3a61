"""The explorer: one page in which models of the zoo and the paper's estimators run live.

    python -m figures explorer --out results      results/explorer.html, a file of at most 3 MB that fetches nothing

`estimators.js` and `forward.js` compute, `words.js` writes, `picture.js` draws, both with elements that `dom.js` makes;
`app.js` holds the state and says where it starts; `page.py` puts them, the style and the rows of `python -m analyses
explorer` into `template.html`. The tests open the page in Chromium and hold its laws to those of `interp`.
"""
