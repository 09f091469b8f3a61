// The theme makes two things in the browser that axe-core objects to: a landmark without a name around each button
// that copies code, and a box around each wide table that scrolls but that the keyboard does not reach.
function name_parts() {
  for (const bar of document.querySelectorAll(".md-code__nav:not([role])")) bar.setAttribute("role", "none");
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "table");
  }
}
name_parts();
new MutationObserver(name_parts).observe(document.body, {childList: true, subtree: true});
