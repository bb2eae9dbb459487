// Replaces the content of the page as the server sends it, keeps what has focus, and stops where the reader wants that.
"use strict";
(() => {
  const main = document.getElementById("main");
  const pause = document.getElementById("pause");
  const live = document.getElementById("live");
  let source = null;

  function find(element) {
    if (!main.contains(element) || element === main) return null;
    for (const name of ["id", "href", "aria-label"]) {
      const value = element.getAttribute(name);
      if (value) return `[${name}="${CSS.escape(value)}"]`;
    }
    return null;
  }

  function show(html) {
    // Who writes into a field goes on writing.
    if (main.contains(document.activeElement) && document.activeElement.matches("input")) return;
    const focus = find(document.activeElement);
    const scrolled = [...main.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    main.innerHTML = html;
    main.querySelectorAll(".scroll").forEach((one, at) => { one.scrollLeft = scrolled[at] || 0; });
    if (focus) main.querySelector(focus)?.focus({ preventScroll: true });
  }

  function tell(text) {
    if (live.textContent !== text) live.textContent = text;
  }

  function start() {
    source = new EventSource("/live?page=" + encodeURIComponent(location.pathname + location.search));
    source.addEventListener("page", (event) => { show(event.data); tell("Live"); });
    source.onerror = () => {
      // An answer that is no stream: logged out, or too many readers.
      if (source.readyState === EventSource.CLOSED) tell("Updates ended; load the page again");
    };
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) { source.close(); tell("Paused"); } else { start(); }
  });
  document.querySelectorAll("nav a").forEach((link) => {
    if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  });
  start();
})();
