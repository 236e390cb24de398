import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ConfigError } from "#base/config";
import { parseQuestion } from "./question.ts";

const faultsOf = (words: readonly string[]): readonly string[] => {
  try {
    parseQuestion(words);
    return [];
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.faults;
  }
};

test("parseQuestion: sources, destinations, ports and protocols in any case", () => {
  const read = (words: string): string => {
    const { source, destination, port, protocol } = parseQuestion(words.split(" "));
    const from = source.kind === "address" ? source.address : source.kind === "pod" ? source.ref.name : source.kind;
    const to = destination.kind === "address" ? destination.address : destination.ref.name;
    return `${from} ${to} ${port}/${protocol}`;
  };
  assert.equal(read("outside 10.0.0.1 80"), "outside 10.0.0.1 80/TCP");
  assert.equal(read("node fd00::1 53/udp"), "node fd00::1 53/UDP");
  assert.equal(read("pod:ns/a service:ns/b 1/SCTP"), "a b 1/SCTP");
  assert.equal(read("10.0.0.2 10.0.0.1 65535/TCP"), "10.0.0.2 10.0.0.1 65535/TCP");
});

test("parseQuestion: all faults are reported at once, each with the right form", () => {
  assert.deepEqual(faultsOf(["pod:a", "web", "0"]), [
    'source "pod:a" is not one of an address, pod:NAMESPACE/NAME, node and outside',
    'destination "web" is neither an address nor service:NAMESPACE/NAME',
    'port "0" is not a port such as 80, 53/UDP or 80/TCP: 1 to 65535, then TCP, UDP or SCTP',
  ]);
  assert.match(
    faultsOf(["outside", "10.0.0.1"]).join(),
    /SOURCE DESTINATION PORT\[\/PROTOCOL\], such as.*2 of 3 words are given/,
  );
  assert.match(faultsOf(["fd00::1", "10.0.0.1", "80"]).join(), /different families/);
  for (const port of ["65536", "-1", "80/ICMP", "80/", "/TCP", "", "8e1"]) {
    assert.equal(faultsOf(["node", "10.0.0.1", port]).length, 1, port);
  }
});

test("parseQuestion: throws only ConfigError, whatever the words", () => {
  const word = fc.oneof(
    fc.string(),
    fc.constantFrom(
      "node",
      "outside",
      "pod:a/b",
      "service:a/b",
      "10.0.0.1",
      "::1",
      "80",
      "80/udp",
      "service:a/",
      "pod:/b",
    ),
  );
  fc.assert(
    fc.property(fc.array(word, { maxLength: 4 }), (words) => void faultsOf(words)),
    { numRuns: 500 },
  );
});
