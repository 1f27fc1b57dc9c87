#include "train/report/assets.h"

namespace trireme::report {

// The crosshair: by pointer, touch or the arrow keys it stands on the nearest reading of the first
// line and tells every line's value there. Everything else on the page works without it.
const std::string_view kScript = R"js(
"use strict";
(() => {
  const make = (parent, name) => {
    const element = document.createElement(name === "tip" || name === "cross" || name === "dot" ? "div" : name);
    if (element.tagName === "DIV") element.className = name;
    parent.append(element);
    return element;
  };
  const place = (axis, value) => axis.log ? Math.log(value / axis.low) / Math.log(axis.high / axis.low)
                                          : (value - axis.low) / (axis.high - axis.low);
  const value = (axis, at) => axis.log ? axis.low * Math.pow(axis.high / axis.low, at)
                                       : axis.low + at * (axis.high - axis.low);
  const words = v => {
    if (v === null) return "not finite";
    const size = Math.abs(v);
    if (size !== 0 && (size < 1e-2 || size >= 1e15)) return v.toExponential(2).replace("e+", "e");
    return size >= 1000 ? Math.round(v).toLocaleString("en-US") : v.toPrecision(4);
  };
  // The place in the ascending list that is nearest to x.
  const nearest = (list, x) => {
    let low = 0, high = list.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] < x) low = middle + 1; else high = middle;
    }
    return low > 0 && x - list[low - 1] < list[low] - x ? low - 1 : low;
  };

  for (const chart of document.querySelectorAll(".chart")) {
    const lines = JSON.parse(chart.querySelector("script").textContent).lines.filter(l => l.x.length > 0);
    if (lines.length === 0) continue;
    const guide = lines[0];
    for (const plot of chart.querySelectorAll(".plot")) {
      const n = plot.dataset.axes.trim().split(" ").map(Number);
      const x = {low: n[0], high: n[1], log: n[2] === 1}, y = {low: n[3], high: n[4], log: n[5] === 1};
      let drawn = [], at = -1;
      const hide = () => { drawn.forEach(e => e.remove()); drawn = []; at = -1; };
      const show = place_ => {
        hide();
        at = place_;
        const step = guide.x[at], left = place(x, step);
        if (!(left >= -1e-9 && left <= 1 + 1e-9)) return hide();
        const cross = make(plot, "cross"), tip = make(plot, "tip");
        cross.style.left = 100 * left + "%";
        drawn = [cross, tip];
        make(tip, "b").textContent = "step " + step.toLocaleString("en-US");
        for (const line of lines) {
          const i = nearest(line.x, step);
          // A line with few points speaks only near one of them.
          if (Math.abs(place(x, line.x[i]) - left) > 0.02) continue;
          const row = make(tip, "span");
          make(row, "span").textContent = line.name;
          make(row, "span").textContent = words(line.y[i]);
          const top = line.y[i] === null ? NaN : 1 - place(y, line.y[i]);
          if (!(top >= 0 && top <= 1)) continue;
          const dot = make(plot, "dot");
          dot.classList.add("c" + line.color);
          dot.style.left = 100 * place(x, line.x[i]) + "%";
          dot.style.top = 100 * top + "%";
          drawn.push(dot);
        }
        if (left > 0.5) tip.style.right = 100 * (1 - left) + 3 + "%"; else tip.style.left = 100 * left + 3 + "%";
      };
      const follow = event => {
        const box = plot.getBoundingClientRect();
        const part = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
        show(nearest(guide.x, value(x, part)));
      };
      plot.addEventListener("pointermove", follow);
      plot.addEventListener("pointerdown", follow);
      plot.addEventListener("pointerleave", hide);
      plot.addEventListener("blur", hide);
      plot.addEventListener("keydown", event => {
        const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20}[event.key];
        if (by === undefined) return;
        event.preventDefault();
        const from = at < 0 ? (by > 0 ? -1 : guide.x.length) : at;
        show(Math.min(guide.x.length - 1, Math.max(0, from + by)));
      });
    }
  }
})();
)js";

}  // namespace trireme::report
