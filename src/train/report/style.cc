#include "train/report/assets.h"

namespace trireme::report {

// Colours are named once, for light and dark. c0 … c3 are curves, b0 … b8 the ledger's buckets in
// the order of their enum. Every text colour has a contrast of 4.5 and more on its ground.
const std::string_view kStyle = R"css(
:root{
  --ground:#fbfaf7;--raised:#fff;--ink:#1b2126;--soft:#5d666d;--line:#e3e0d9;--hover:#f1efe9;
  --c0:#0a6c86;--c1:#bb4a12;--c2:#6a4fa3;--c3:#4d7a1f;
  --good:#1d6b45;--good-ground:#e2f1e8;--warn:#855500;--warn-ground:#faefd6;--bad:#a82424;--bad-ground:#fbe6e3;
  --prompt:#e4eff2;
  --b0:#94a0a8;--b1:#d9a514;--b2:#0a6c86;--b3:#6a4fa3;--b4:#55a6b8;--b5:#bb4a12;--b6:#e08b58;--b7:#4d7a1f;--b8:#c9cdc9;
  --sans:"Inter","Segoe UI Variable Text","Segoe UI",system-ui,-apple-system,"Helvetica Neue",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
  --mono:ui-monospace,"SF Mono","Cascadia Mono","JetBrains Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;
}
@media (prefers-color-scheme:dark){:root{
  --ground:#12171b;--raised:#191f24;--ink:#e8e6e1;--soft:#9ba6ad;--line:#2c343a;--hover:#222a30;
  --c0:#5bb9d3;--c1:#f09a63;--c2:#b49df0;--c3:#a3cc6b;
  --good:#7fd3a5;--good-ground:#17332a;--warn:#eec06a;--warn-ground:#3a2f14;--bad:#ff9c92;--bad-ground:#43211f;
  --prompt:#1e3b45;
  --b0:#6d7a83;--b1:#d9ae3a;--b2:#3f9db8;--b3:#9b82dd;--b4:#8fd0df;--b5:#e0814a;--b6:#f3bd97;--b7:#8bb555;--b8:#4a545b;
}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 var(--sans);font-variant-numeric:tabular-nums}
main{max-width:1120px;margin:0 auto;padding:40px 32px 64px}
h1,h2,h3,p,dl,dd,figure,ul{margin:0;padding:0}
h1{font-size:clamp(1.75rem,1.2rem + 2.4vw,2.6rem);line-height:1.15;letter-spacing:-.022em;font-weight:680;overflow-wrap:anywhere;display:inline}
h2{font-size:1.25rem;letter-spacing:-.01em;font-weight:650;margin-bottom:16px}
h3{font-size:.9375rem;font-weight:650;margin-bottom:6px}
section{margin-top:56px}
small{font-size:.8125rem;color:var(--soft);font-weight:400}
a{color:var(--c0);text-underline-offset:2px}
:focus-visible{outline:2px solid var(--c0);outline-offset:3px;border-radius:3px}
.note{font-size:.875rem;color:var(--soft)}

.eyebrow{font-size:.8125rem;letter-spacing:.06em;color:var(--soft);margin-bottom:6px}
.status{display:inline-block;vertical-align:.35em;margin-left:12px;padding:2px 11px;border-radius:99px;font-size:.8125rem;font-weight:600;background:var(--hover);color:var(--soft)}
.status.good{background:var(--good-ground);color:var(--good)}
.status.warn{background:var(--warn-ground);color:var(--warn)}
.status.bad{background:var(--bad-ground);color:var(--bad)}
.subtitle{margin-top:8px;font-size:1.0625rem;max-width:72ch;text-wrap:balance}
.meta{margin-top:8px;font-size:.9375rem;color:var(--soft);overflow-wrap:anywhere}
.headline{display:flex;flex-wrap:wrap;gap:1px;margin-top:32px;background:var(--line);border:1px solid var(--line);border-radius:10px;overflow:hidden}
.headline>div{flex:1 1 150px;min-width:0;background:var(--raised);padding:14px 16px 16px}
.headline dt{font-size:.8125rem;color:var(--soft)}
.headline dd{font-size:1.625rem;line-height:1.25;font-weight:620;letter-spacing:-.02em;overflow-wrap:anywhere}
.headline i{font-style:normal;font-size:.62em;font-weight:550;letter-spacing:0;color:var(--soft)}
.headline small{display:block;margin-top:4px;font-size:.75rem;line-height:1.4;letter-spacing:0}

.incidents{margin-top:32px;padding:18px 22px;border:1px solid var(--bad);border-radius:10px;background:var(--bad-ground)}
.incidents h2{font-size:1rem;color:var(--bad);margin-bottom:8px}
.incidents ul{list-style:none}
.incidents li{display:flex;gap:4px 16px;flex-wrap:wrap;padding:3px 0}
.incidents .step{color:var(--bad);font-weight:600;min-width:6.5em}
.incidents .what{flex:1 1 16em;overflow-wrap:anywhere;white-space:pre-line}

.chart{background:var(--raised);border:1px solid var(--line);border-radius:10px;padding:14px 16px 10px;container-type:inline-size;position:relative;min-width:0}
.chart>input{position:absolute;opacity:0;width:1px;height:1px;margin:0}
.chart>input~.view{display:none}
.chart>.r0:checked~.v0,.chart>.r1:checked~.v1,.chart>.r2:checked~.v2{display:block}
.chart>.r0:checked~figcaption .l0,.chart>.r1:checked~figcaption .l1,.chart>.r2:checked~figcaption .l2{background:var(--raised);color:var(--ink);box-shadow:0 0 0 1px var(--line),0 1px 2px rgb(0 0 0/.08)}
.chart>.r0:focus-visible~figcaption .l0,.chart>.r1:focus-visible~figcaption .l1,.chart>.r2:focus-visible~figcaption .l2{outline:2px solid var(--c0);outline-offset:1px}
figcaption{display:flex;flex-wrap:wrap;align-items:center;gap:4px 18px;min-height:28px;margin-bottom:14px}
figcaption .name{font-weight:650;font-size:.9375rem}
.legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:.8125rem;color:var(--soft)}
.key::before{content:"";display:inline-block;width:16px;height:0;border-top:2.5px solid var(--c);vertical-align:.28em;margin-right:6px;border-radius:2px}
.key.faint::before{opacity:.4;border-top-width:1.5px}
.key.dots::before{width:8px;height:8px;border:0;background:var(--c);border-radius:50%;vertical-align:0}
.key.mark::before{width:0;height:12px;border-top:0;border-left:1.5px dashed var(--soft);vertical-align:-.12em;border-radius:0}
.key.alarm::before{border-left-color:var(--bad)}
.switch{margin-left:auto;display:inline-flex;background:var(--hover);border-radius:7px;padding:2px;font-size:.8125rem}
.switch label{padding:2px 10px;border-radius:5px;color:var(--soft);cursor:pointer;white-space:nowrap}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}
.plot{position:relative;height:var(--h);margin:0 calc(var(--right) + 12px) 28px calc(var(--left) + 10px);font-size:12px;line-height:16px;touch-action:pan-y}
.plot svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}
.plot path{fill:none;vector-effect:non-scaling-stroke;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.plot .grid{stroke:var(--line);stroke-width:1}
.plot .base{stroke:var(--soft);stroke-width:1;opacity:.7}
.plot .faint{stroke-width:1;opacity:.38}
.plot .thin{stroke-width:1.5;opacity:.75}
.plot .dots{stroke-width:7}
.plot .dots.many{stroke-width:4.5}
.plot .mark{stroke:var(--soft);stroke-width:1;stroke-dasharray:3 3}
.plot .mark.alarm{stroke:var(--bad)}
.yt,.xt,.end,.xname{position:absolute;white-space:nowrap;color:var(--soft);pointer-events:none}
.yt{right:100%;margin-right:9px;transform:translateY(-50%)}
.xt{top:100%;margin-top:6px;transform:translateX(-50%)}
.xname{top:100%;right:100%;margin-top:6px}
.end{margin-left:8px;transform:translateY(-50%);color:var(--c);font-weight:650}
.end.inside{margin-left:0;transform:translate(-50%,calc(-100% - 6px));text-shadow:0 0 3px var(--raised),0 0 3px var(--raised),0 0 3px var(--raised)}
@container (max-width:430px){.xt.odd{display:none}}
.cross{position:absolute;top:0;bottom:0;width:1px;background:var(--soft);pointer-events:none}
.dot{position:absolute;width:9px;height:9px;margin:-4.5px;border-radius:50%;background:var(--c);box-shadow:0 0 0 2px var(--raised);pointer-events:none}
.tip{position:absolute;top:-6px;z-index:2;padding:7px 11px;border-radius:7px;background:var(--ink);color:var(--ground);font-size:12px;line-height:17px;white-space:nowrap;pointer-events:none;box-shadow:0 2px 10px rgb(0 0 0/.18)}
.tip b{font-weight:650}
.tip span{display:flex;justify-content:space-between;gap:14px}
.small-charts{display:grid;grid-template-columns:minmax(0,1fr);gap:16px;margin-top:16px}
@media (min-width:820px){
  .small-charts{grid-template-columns:repeat(2,minmax(0,1fr))}
  .small-charts>:last-child:nth-child(odd){grid-column:1/-1}
}

.scroll{overflow-x:auto}
.numbers{border-collapse:collapse;font-size:.875rem;width:100%}
.numbers th,.numbers td{text-align:right;padding:6px 0 6px 20px;border-bottom:1px solid var(--line);font-weight:400;vertical-align:baseline;white-space:nowrap}
.numbers thead th{color:var(--soft);font-size:.8125rem}
.numbers th:first-child,.numbers td:first-child{padding-left:0;text-align:left}
.numbers .words{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:9em}
.numbers tfoot th,.numbers tfoot td{border:0;font-weight:650}
.bar{display:flex;gap:2px;height:30px;border-radius:7px;overflow:hidden;margin-bottom:14px}
.bar span{flex:1 1 0;min-width:2px;background:var(--b)}
.swatch{display:inline-block;width:11px;height:11px;border-radius:3px;background:var(--b);margin-right:10px}
.b0{--b:var(--b0)}.b1{--b:var(--b1)}.b2{--b:var(--b2)}.b3{--b:var(--b3)}.b4{--b:var(--b4)}.b5{--b:var(--b5)}.b6{--b:var(--b6)}.b7{--b:var(--b7)}.b8{--b:var(--b8)}
.ledger{max-width:680px}
section>h3{margin-top:28px}
.attempts{margin:0;padding:0;list-style:none;counter-reset:a;max-width:680px;font-size:.875rem}
.attempts li{counter-increment:a;position:relative;padding:8px 0 8px calc(1ch + 18px);border-bottom:1px solid var(--line);overflow-wrap:anywhere}
.attempts div{display:flex;flex-wrap:wrap;gap:2px 18px;align-items:baseline}
.attempts li::before{content:counter(a);color:var(--soft);position:absolute;left:0;top:10px}
.attempts .status{margin:0;min-width:5.6em;text-align:center}
.attempts p{color:var(--soft);margin-top:4px}
.ledger th{white-space:normal}
.ledger small{margin-left:6px}

details{border-top:1px solid var(--line)}
details:last-of-type{border-bottom:1px solid var(--line)}
details.table{margin-top:16px}
summary{cursor:pointer;padding:9px 2px;font-size:.9375rem;color:var(--soft)}
summary:hover{color:var(--ink)}
details[open]>summary{color:var(--ink);font-weight:600}
details>.scroll{padding-bottom:12px}
pre{margin:0 0 14px;padding:14px 16px;background:var(--raised);border:1px solid var(--line);border-radius:8px;font:.8125rem/1.55 var(--mono);tab-size:4;overflow-x:auto}
.sample{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:isolate}
.prompt{background:var(--prompt);border-radius:2px}
.sample .prompt{font-weight:600}
.cut{color:var(--soft)}
section>.note{margin-bottom:12px}
.fact-tables{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:28px 40px}
.facts div{display:flex;gap:16px;padding:5px 0;border-bottom:1px solid var(--line);font-size:.875rem}
.facts dt{color:var(--soft);flex:0 0 42%;overflow-wrap:anywhere}
.facts dd{flex:1;overflow-wrap:anywhere}
.recipe{white-space:pre}
.t-comment{color:var(--soft)}.t-table{color:var(--c1);font-weight:600}.t-key{color:var(--c0)}.t-string{color:var(--c3)}.t-value{color:var(--c2)}
footer{margin-top:64px;font-size:.8125rem;color:var(--soft)}
@media (max-width:560px){
  main{padding:24px 16px 40px}
  section{margin-top:40px}
  .headline>div{flex-basis:40%;padding:11px 13px 13px}
  .headline dd{font-size:1.375rem}
  .chart{padding:12px 12px 8px}
  .ledger small{display:block;margin:0 0 0 21px}
  .numbers th,.numbers td{padding-left:12px}
  .switch{margin-left:0}
}
@media print{main{max-width:none;padding:0}.switch{display:none}section,figure{break-inside:avoid}}
)css";

}  // namespace trireme::report
