import assert from "node:assert/strict";
import { test } from "node:test";
import { parseFlags } from "#base/config";
import { balancerFault, balancerFlags, balancersOf } from "./index.ts";

const parse = (...argv: string[]) => parseFlags(balancerFlags, argv).values;

test("balancersOf: addresses of the list, as sockets have them, are balancers", () => {
  const values = parse("--balancer-cidr=192.0.2.0/24, 2001:db8::/32", "--balancer-cidr=fe80::1/128");
  const { isBalancer, readsProxyHeaders } = balancersOf(values);
  const cases = {
    "192.0.2.7": true,
    "::ffff:192.0.2.7": true,
    "192.0.3.7": false,
    "2001:db8::1": true,
    "fe80::1%eth0": true,
    "::ffff:0:1": false,
    "": false,
  };
  for (const [address, expected] of Object.entries(cases)) assert.equal(isBalancer?.(address), expected, address);
  assert.equal(readsProxyHeaders, false);
  assert.deepEqual(balancersOf(parse()), { isBalancer: undefined, readsProxyHeaders: false });
  assert.throws(() => parse("--balancer-cidr=192.0.2.0"), { name: "ConfigError" });
  assert.throws(() => parse("--balancer-cidr="), { name: "ConfigError" });
});

test("balancerFault: PROXY headers need a list of balancers", () => {
  assert.equal(balancerFault(parse()), undefined);
  assert.equal(balancerFault(parse("--balancer-proxy-protocol", "--balancer-cidr=::/0")), undefined);
  assert.match(balancerFault(parse("--balancer-proxy-protocol")) ?? "", /^needs --balancer-cidr/);
});
