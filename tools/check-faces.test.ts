import assert from "node:assert/strict";
import { test } from "node:test";
import { exportsOf, usesOf } from "./check-faces.ts";

test("exportsOf: lists with types and aliases; nothing of comments, and no declarations of the face itself", () => {
  const face = [
    "/** export { no } */",
    'export { a, type B, c as d } from "./x.ts";',
    'export type { E } from "./y.ts";',
    "export interface F {}",
    "export async function g(): Promise<void> {}",
    "export const h = 1;",
  ].join("\n");
  assert.deepEqual(exportsOf(face), ["a", "B", "d", "E"]);
});

test("usesOf: names by what they are called there; a whole module for a namespace, a dynamic or a bare import", () => {
  const file = [
    'import { a as b, type C } from "#base/x";',
    'import * as v from "valibot";',
    'import "./effect.ts";',
    'const lazy = await import("#base/lazy");',
    'export { z } from "./z/index.ts";',
  ].join("\n");
  assert.deepEqual(usesOf(file), [
    { from: "#base/x", names: ["a", "C"] },
    { from: "./z/index.ts", names: ["z"] },
    { from: "valibot", names: ["*"] },
    { from: "./effect.ts", names: ["*"] },
    { from: "#base/lazy", names: ["*"] },
  ]);
});
