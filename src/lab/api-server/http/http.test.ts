import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ApiError } from "../errors.ts";
import type { Json } from "../object/json.ts";
import { humanDuration } from "../table/columns.ts";
import { evaluatePath, parsePath } from "../table/json-path.ts";
import { negotiate } from "./accept.ts";
import { MAX_DEPTH, parseJson, parseObjectBody, parseYaml } from "./body.ts";
import { parseMatch } from "./faults-endpoint.ts";

function onlyApiError(work: () => unknown): void {
  try {
    work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

test("bodies: JSON and YAML are read, anything else is refused with its status", () => {
  assert.deepEqual(parseObjectBody(Buffer.from('{"a":1}'), "application/json; charset=utf-8"), { a: 1 });
  assert.deepEqual(parseObjectBody(Buffer.from("a: 1\nb: yes\nc: 2026-01-01"), "application/yaml"), {
    a: 1,
    b: "yes",
    c: "2026-01-01",
  });
  assert.throws(
    () => parseObjectBody(Buffer.from("x"), "text/plain"),
    (error) => error instanceof ApiError && error.httpStatus === 415,
  );
  assert.throws(
    () => parseObjectBody(Buffer.from("{"), "application/json"),
    (error) => error instanceof ApiError && error.httpStatus === 400,
  );
  assert.throws(() => parseObjectBody(Buffer.from("[]"), "application/json"), /must be an object/);
});

test("bodies: nesting is bounded", () => {
  const deep = "[".repeat(MAX_DEPTH + 2) + "]".repeat(MAX_DEPTH + 2);
  assert.throws(() => parseJson(Buffer.from(deep)), /nests deeper/);
});

test("bodies: nothing but ApiError escapes the parsers", () => {
  const text = fc.oneof(fc.string(), fc.json(), fc.stringMatching(/^[-a-z:&*{}[\]!|> \n]{0,60}$/));
  fc.assert(
    fc.property(text, (input) => {
      onlyApiError(() => parseJson(Buffer.from(input)));
      onlyApiError(() => parseYaml(Buffer.from(input)));
    }),
  );
  fc.assert(fc.property(fc.uint8Array(), (bytes) => onlyApiError(() => parseYaml(Buffer.from(bytes)))));
});

test("Accept: the first form that is known is taken, none is 406", () => {
  const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
  assert.deepEqual(negotiate(table, "Object"), { as: "table", table: { version: "v1", include: "Object" } });
  assert.deepEqual(negotiate("application/vnd.kubernetes.protobuf, application/json", null), {
    as: "object",
    yaml: false,
  });
  assert.deepEqual(negotiate(undefined, null), { as: "object", yaml: false });
  assert.deepEqual(negotiate("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", null), {
    as: "metadata",
    version: "v1",
  });
  assert.throws(
    () => negotiate("application/vnd.kubernetes.protobuf", null),
    (error) => error instanceof ApiError && error.httpStatus === 406,
  );
  fc.assert(fc.property(fc.string(), (header) => onlyApiError(() => negotiate(header, null))));
});

test("fault matches: known fields are read, others are named in the error", () => {
  assert.deepEqual(parseMatch({ verb: ["get"], probability: 0.5, times: 2, name: "a" }), {
    verb: ["get"],
    probability: 0.5,
    times: 2,
    name: "a",
  });
  assert.throws(() => parseMatch({ probability: 2 }), /match\.probability/);
  fc.assert(fc.property(fc.jsonValue(), (value) => onlyApiError(() => parseMatch(value as Json))));
});

test("column paths: members, indexes, wildcards and filters are followed", () => {
  const object = {
    a: {
      b: [
        { t: "x", v: 1 },
        { t: "y", v: 2 },
      ],
    },
    "c.d": 3,
  };
  const read = (path: string): Json[] => evaluatePath(parsePath(path) ?? [], object);
  assert.deepEqual(read(".a.b[0].v"), [1]);
  assert.deepEqual(read(".a.b[*].v"), [1, 2]);
  assert.deepEqual(read('.a.b[?(@.t=="y")].v'), [2]);
  assert.deepEqual(read(".a.b[-1].v"), [2]);
  assert.deepEqual(read("['c.d']"), [3]);
  assert.deepEqual(read(".a.nothing[3].x"), []);
  fc.assert(
    fc.property(fc.string(), fc.jsonValue(), (path, value) => void evaluatePath(parsePath(path) ?? [], value as Json)),
  );
});

test("ages: as kubectl prints them", () => {
  const cases: [number, string][] = [
    [-5, "<invalid>"],
    [0, "0s"],
    [119, "119s"],
    [125, "2m5s"],
    [600, "10m"],
    [3 * 3600, "3h"],
    [3 * 3600 + 300, "3h5m"],
    [10 * 3600, "10h"],
    [50 * 3600, "2d2h"],
    [10 * 86400, "10d"],
    [800 * 86400, "2y70d"],
  ];
  for (const [seconds, want] of cases) assert.equal(humanDuration(seconds * 1000), want);
});
