"""LokiJS removes few documents without new indices; queries by each index stay correct."""

from __future__ import annotations

from typing import Any

import pytest

# Output: number of rebuilds of all indices; whether each query found the same as a full scan.
PROGRAM = """
const Loki = require("lokijs");
const documents = new Loki("x").addCollection("blobs", { indices: ["container", "name"] });
let rebuilt = 0;
const { ensureAllIndexes } = Loki.Collection.prototype;
Loki.Collection.prototype.ensureAllIndexes = function (...given) {
  rebuilt++;
  return ensureAllIndexes.apply(this, given);
};
const modulus = 997;
for (let at = 0; at < modulus; at++) {
  documents.insert({ container: `c${at % 7}`, name: `n${(at * 389) % modulus}` });
}
let isRight = true;
for (let round = 0; round < 40; round++) {
  const names = Array.from({ length: MANY }, (_, at) => `n${round * MANY + at}`);
  documents.findAndRemove({ name: { $in: names } });
  for (const [field, value] of [["container", "c3"], ["name", `n${round}`], ["name", "n996"]]) {
    const expected = documents.data.filter((each) => each[field] === value).length;
    isRight &&= documents.find({ [field]: value }).length === expected;
  }
}
isRight &&= documents.count() === modulus - 40 * MANY;
console.log(JSON.stringify([rebuilt, isRight]));
"""


@pytest.mark.parametrize(("count", "rebuilt"), [(3, 0), (24, 40)])
def test_indices_are_made_anew_for_many_documents_only(
    run_with_lokijs: Any, count: int, rebuilt: int
) -> None:
    program = PROGRAM.replace("MANY", str(count))
    assert run_with_lokijs(program, "few_removals.js") == [rebuilt, True]
