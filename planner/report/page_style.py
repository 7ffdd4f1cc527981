"""The style of a report's page: light or dark as the reader's system is, readable from 320 pixels on."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #5d6778; --line: #d8dde6; --page: #ffffff; --card: #f5f7fa;
  --forward: #2f9e63; --recompute: #d9a514; --backward: #3566c9; --update: #6b7280; --gather: #12a5b8;
  --scatter: #b44fc0; --reduce: #d94f4f; --track: #eceff4; --good: #1f7a4a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf2; --dim: #9aa5b8; --line: #333c4b; --page: #12161d;
  --card: #1b212b; --forward: #45c483; --recompute: #e5b93a; --backward: #6f9cf3; --update: #9aa3b2; --gather: #35c5d8;
  --scatter: #d07fdb; --reduce: #f07575; --track: #232a36; --good: #5cd394; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px 20px 48px; max-width: 1240px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; line-height: 1.25; } h2 { font-size: 1.1rem; margin: 32px 0 8px; }
p { margin: 4px 0 8px; } .dim { color: var(--dim); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; margin: 18px 0; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 1.25rem; font-weight: 600; } .tile span { color: var(--dim); font-size: .85rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th { text-align: left; color: var(--dim); font-weight: 500; } th, td { padding: 5px 12px 5px 0; vertical-align: top;
  border-bottom: 1px solid var(--line); } td.n, th.n { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; } tr.chosen td { font-weight: 600; } td.bar { width: 45%; min-width: 90px; }
td.wide { min-width: 200px; }
.bar i { display: block; height: 12px; margin-top: 5px; border-radius: 2px; background: var(--backward); }
figure { margin: 0 0 18px; } figcaption { color: var(--dim); font-size: .9rem; margin-bottom: 6px; }
.strip { display: grid; grid-template-columns: max-content 1fr; column-gap: 12px; }
.lanes { display: grid; font-size: .85rem; color: var(--dim); white-space: nowrap; }
svg { width: 100%; display: block; } .ticks { display: flex; justify-content: space-between; font-size: .78rem;
  color: var(--dim); }
rect { stroke: none; } .track { fill: var(--track); } .odd { opacity: .72; }
.forward { fill: var(--forward); background: var(--forward); } .recompute { fill: var(--recompute);
  background: var(--recompute); } .backward { fill: var(--backward); background: var(--backward); }
.update { fill: var(--update); background: var(--update); } .all_gather, .broadcast { fill: var(--gather);
  background: var(--gather); } .reduce_scatter, .all_to_all { fill: var(--scatter); background: var(--scatter); }
.all_reduce, .reduce { fill: var(--reduce); background: var(--reduce); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: .85rem; color: var(--dim); margin: 6px 0 14px; }
.legend i { display: inline-block; width: 12px; height: 12px; border-radius: 3px; margin-right: 5px; }
.warning { border-left: 3px solid var(--recompute); padding: 2px 0 2px 12px; margin: 8px 0; }
@media (max-width: 640px) { body { padding: 16px 12px 32px; } .lanes { font-size: .72rem; } td.bar, th.bar {
  display: none; } .strip { column-gap: 6px; } .ticks span:nth-child(even) { display: none; } }
"""
