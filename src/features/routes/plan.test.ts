import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import { type Kernel, openFakeKernel } from "./test-kernel.ts";
