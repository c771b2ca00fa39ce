// Tensors in binary, there and back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fromBytes, pack, toBytes, unpack } from "../../playground/maths/tensors.js";

test("values come back from their bytes, for each type of data", () => {
  for (const [datatype, values] of [["INT32", [1, -2]], ["FP32", [0.5, -1]], ["FP64", [0.1]], ["UINT8", [0, 255]], ["BYTES", ["", "😀 win"]], ["BOOL", [true, false]]])
    assert.deepEqual(fromBytes(datatype, toBytes(datatype, values)), values, datatype);
  assert.deepEqual(fromBytes("INT64", toBytes("INT64", [1, "9007199254740993"])), ["1", "9007199254740993"]);
  assert.throws(() => toBytes("BF16", [1]), /BF16/);
});

test("the header has the sizes of the tensors that follow it", () => {
  const { body, length } = pack({ id: "7", inputs: [{ name: "a", datatype: "INT32", shape: [2], data: [1, 2] }, { name: "b", datatype: "BYTES", shape: [1], data: ["é"] }] });
  const header = JSON.parse(new TextDecoder().decode(body.subarray(0, length)));
  assert.deepEqual(header.inputs.map((input) => [input.name, input.parameters.binary_data_size, input.data]), [["a", 8, undefined], ["b", 6, undefined]]);
  assert.equal(body.length, length + 14);
});

test("an answer has the data of its binary outputs in their order", () => {
  const header = new TextEncoder().encode(JSON.stringify({ outputs: [{ name: "x", datatype: "FP32", shape: [1], parameters: { binary_data_size: 4 } }, { name: "y", datatype: "INT32", shape: [1], data: [3] }, { name: "z", datatype: "BYTES", shape: [1], parameters: { binary_data_size: 6 } }] }));
  const bytes = new Uint8Array([...header, ...toBytes("FP32", [1.5]), ...toBytes("BYTES", ["ok"])]);
  assert.deepEqual(unpack(bytes, header.length).outputs.map((output) => output.data), [[1.5], [3], ["ok"]]);
});
