import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import ipaddr from "ipaddr.js";
import { Cidr, IpAddress, IpParseError, MacAddress, socketAddress, unmapped, unmappedCidr } from "./index.ts";

const v4 = fc.bigInt({ min: 0n, max: (1n << 32n) - 1n }).map((value) => IpAddress.fromValue(4, value));
/** Half of them with long runs of zeros, where the text is hardest. */
const v6 = fc
  .oneof(
    fc.bigInt({ min: 0n, max: (1n << 128n) - 1n }),
    fc
      .array(fc.oneof(fc.constant(0n), fc.bigInt({ min: 0n, max: 0xffffn })), { minLength: 8, maxLength: 8 })
      .map((groups) => groups.reduce((value, group) => (value << 16n) | group, 0n)),
    fc.bigInt({ min: 0xffff_0000_0000n, max: 0xffff_ffff_ffffn }),
  )
  .map((value) => IpAddress.fromValue(6, value));
const address = fc.oneof(v4, v6);
const cidr = address.chain((base) => fc.nat(base.bits).map((length) => Cidr.of(base, length)));

function bytesOf(parsed: ipaddr.IPv4 | ipaddr.IPv6): Uint8Array {
  return Uint8Array.from(parsed.toByteArray());
}

test("IpAddress: reads the same text as ipaddr.js, and writes RFC 5952", () => {
  fc.assert(
    fc.property(address, (one) => {
      const peer = ipaddr.parse(one.toString());
      assert.deepEqual(bytesOf(peer), one.toBytes());
      assert.ok(IpAddress.parse(one.toString()).equals(one));
      const mapped = one.family === 6 && one.value >> 32n === 0xffffn;
      if (peer.kind() === "ipv6" && !mapped) assert.equal(one.toString(), (peer as ipaddr.IPv6).toRFC5952String());
      assert.ok(IpAddress.fromBytes(one.toBytes()).equals(one));
      assert.equal(BigInt(one.low32), one.value % 2n ** 32n);
    }),
  );
});

test("IpAddress: bytes are written where they are wanted, whole or not at all", () => {
  fc.assert(
    fc.property(address, fc.nat(24), (one, offset) => {
      const into = new Uint8Array(24).fill(0xee);
      const size = one.bits / 8;
      if (offset + size > into.length) assert.throws(() => one.writeTo(into, offset), RangeError);
      else one.writeTo(into, offset);
      const written = offset + size > into.length ? [] : [...one.toBytes()];
      const expected = new Array<number>(24).fill(0xee);
      expected.splice(offset, written.length, ...written);
      assert.deepEqual([...into], expected);
    }),
  );
});

test("IpAddress: every spelling that ipaddr.js reads strictly has the same value here", () => {
  const group = fc.oneof(
    fc.constantFrom("0", "", "00ff", "FFFF", "12345", "g"),
    fc.nat(0xffff).map((n) => n.toString(16)),
  );
  const spelling = fc.oneof(
    fc.array(group, { minLength: 1, maxLength: 9 }).map((groups) => groups.join(":")),
    fc
      .tuple(fc.array(group, { maxLength: 6 }), fc.constantFrom("1.2.3.4", "256.1.1.1", "1.2.3"))
      .map(([groups, quad]) => [...groups, quad].join(":")),
    fc
      .array(fc.oneof(fc.nat(300).map(String), fc.constantFrom("", "-1", "1e1")), { minLength: 1, maxLength: 5 })
      .map((parts) => parts.join(".")),
  );
  fc.assert(
    fc.property(spelling, (text) => {
      const own = IpAddress.tryParse(text);
      const strict = text.includes(":") ? ipaddr.IPv6.isValid(text) : ipaddr.IPv4.isValidFourPartDecimal(text);
      if (own === undefined) {
        // ipaddr.js also accepts shapes that RFC 4291 does not, such as "::" for no group at all.
        if (strict && !text.includes("::")) assert.fail(`${text} is an address`);
        return;
      }
      assert.ok(strict, `${text} is not an address to ipaddr.js`);
      // ipaddr.js treats IPv4-compatible addresses (RFC 4291 section 2.5.5.1) as mapped.
      const expected =
        text === "::1.2.3.4" ? Uint8Array.of(...Array(12).fill(0), 1, 2, 3, 4) : bytesOf(ipaddr.parse(text));
      assert.deepEqual(expected, own.toBytes());
    }),
    { numRuns: 2000 },
  );
});

test("IpAddress: arbitrary text is an address or an IpParseError", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom(..."0123456789abcdef:./-") })), (text) => {
      for (const parse of [IpAddress.parse, Cidr.parse, MacAddress.parse]) {
        try {
          parse(text);
        } catch (error) {
          assert.ok(error instanceof IpParseError, String(error));
        }
      }
    }),
    { numRuns: 2000 },
  );
});

test("IpAddress: leading zeros, zones, prefixes and short forms are refused with the text in the message", () => {
  for (const text of [
    "01.2.3.4",
    "1.2.3",
    "1.2.3.4.5",
    "fe80::1%eth0",
    "1.2.3.4/8",
    "",
    ":",
    ":::",
    "1::2::3",
    "::1.2.3",
    "1.2.3.4::",
  ]) {
    assert.throws(() => IpAddress.parse(text), {
      name: "IpParseError",
      code: "invalid-address",
      message: `"${text}" is not an IP address`,
    });
  }
});

test("IpAddress: plus is exact and refuses to leave the address space", () => {
  fc.assert(
    fc.property(address, fc.bigInt({ min: -(1n << 129n), max: 1n << 129n }), (one, offset) => {
      const sum = one.value + offset;
      if (sum < 0n || sum >= 1n << BigInt(one.bits)) assert.throws(() => one.plus(offset), { code: "invalid-address" });
      else assert.equal(one.plus(offset).value, sum);
    }),
  );
  assert.throws(() => IpAddress.fromBytes(new Uint8Array(5)), { code: "invalid-address" });
});

test("IpAddress: compare orders IPv4 before IPv6, then by value, and agrees with equals", () => {
  fc.assert(
    fc.property(address, address, (a, b) => {
      assert.equal(Math.sign(a.compare(b)), -Math.sign(b.compare(a)) + 0);
      assert.equal(a.compare(b) === 0, a.equals(b));
      if (a.family !== b.family) assert.equal(a.compare(b) < 0, a.family === 4);
    }),
  );
});

test("IpAddress: the special ranges are those of ipaddr.js", () => {
  fc.assert(
    fc.property(
      fc.oneof(
        address,
        fc
          .constantFrom(
            "127.3.2.1",
            "::1",
            "::",
            "0.0.0.0",
            "169.254.1.1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "::ffff:127.0.0.1",
          )
          .map((text) => IpAddress.parse(text)),
      ),
      (one) => {
        const range = ipaddr.parse(one.toString()).range();
        assert.equal(one.isLoopback, range === "loopback");
        assert.equal(one.isLinkLocal, range === "linkLocal");
        assert.equal(one.isUnspecified, one.family === 6 ? range === "unspecified" : one.value === 0n);
      },
    ),
  );
});

test("Cidr: contains agrees with match of ipaddr.js", () => {
  fc.assert(
    fc.property(cidr, address, fc.bigInt({ min: 0n, max: 1n << 128n }), (block, other, random) => {
      const inside = block.at(random % block.size);
      for (const one of [other, inside]) {
        const peer = ipaddr.parse(one.toString());
        const base = ipaddr.parse(block.base.toString());
        // A kind of 4 in 6 must not be unwrapped.
        const match =
          peer.kind() === base.kind() && (peer as ipaddr.IPv4).match(base as ipaddr.IPv4, block.prefixLength);
        assert.equal(block.contains(one), match, `${block} and ${one}`);
        assert.equal(block.indexOf(one) !== undefined, match);
      }
      assert.equal(block.indexOf(inside), random % block.size);
    }),
  );
});

test("Cidr: text round trips, host bits are masked, and strict refuses them with a suggestion", () => {
  fc.assert(
    fc.property(
      address.chain((one) => fc.tuple(fc.constant(one), fc.nat(one.bits))),
      ([one, length]) => {
        const block = Cidr.parse(`${one}/${length}`);
        assert.ok(Cidr.parse(block.toString(), { strict: true }).equals(block));
        assert.ok(block.contains(one));
        assert.equal(block.last.value - block.first.value + 1n, block.size);
        if (!block.base.equals(one)) {
          assert.throws(
            () => Cidr.parse(`${one}/${length}`, { strict: true }),
            (error: Error) => error.message.includes(`did you mean ${block}?`),
          );
        }
      },
    ),
  );
  for (const text of ["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "fd00::/129", "/8", "10.0.0.0/", "10.0.0.0/-1"]) {
    assert.equal(Cidr.tryParse(text), undefined, text);
  }
});

test("Cidr: overlap is symmetric and means one contains the other", () => {
  fc.assert(
    fc.property(cidr, cidr, (a, b) => {
      assert.equal(a.overlaps(b), b.overlaps(a));
      const share = a.family === b.family && a.first.value <= b.last.value && b.first.value <= a.last.value;
      assert.equal(a.overlaps(b), share);
      if (a.contains(b)) assert.ok(a.contains(b.first) && a.contains(b.last));
    }),
  );
});

test("Cidr: subnets tile their prefix in order, and there is none past the end", () => {
  fc.assert(
    fc.property(cidr, fc.nat(10), (block, more) => {
      const length = Math.min(block.base.bits, block.prefixLength + more);
      const count = 2 ** (length - block.prefixLength);
      let next = block.first.value;
      for (let at = 0; at < count; at += 1) {
        const subnet = block.subnet(length, at);
        assert.equal(subnet.first.value, next);
        assert.equal(subnet.prefixLength, length);
        next = subnet.last.value + 1n;
      }
      assert.equal(next, block.last.value + 1n);
      assert.throws(() => block.subnet(length, count), RangeError);
      assert.throws(() => block.at(block.size), RangeError);
    }),
    { numRuns: 50 },
  );
});

test("MacAddress: bytes and text round trip, and bytes are copied", () => {
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 6, maxLength: 6 }), (bytes) => {
      const mac = MacAddress.fromBytes(bytes);
      assert.ok(MacAddress.parse(mac.toString().toUpperCase().replaceAll(":", "-")).equals(mac));
      mac.toBytes().fill(0);
      assert.deepEqual(mac.toBytes(), bytes);
    }),
  );
  assert.throws(() => MacAddress.fromBytes(new Uint8Array(8)), { code: "invalid-mac" });
});

test("unmapped, unmappedCidr, socketAddress: an IPv4-mapped address is an IPv4 one, others stay", () => {
  for (const [text, plain] of [
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["192.0.2.1", "192.0.2.1"],
    ["::192.0.2.1", "::c000:201"],
    ["2001:db8::1", "2001:db8::1"],
  ] as const)
    assert.equal(String(unmapped(IpAddress.parse(text))), plain);
  for (const [text, plain] of [
    ["::ffff:10.0.0.0/104", "10.0.0.0/8"],
    ["::ffff:0:0/96", "0.0.0.0/0"],
    ["::ffff:0:0/95", "::fffe:0:0/95"],
    ["::/0", "::/0"],
  ] as const)
    assert.equal(
      String(unmappedCidr(Cidr.of(IpAddress.parse(text.split("/")[0] ?? ""), Number(text.split("/")[1])))),
      plain,
    );
  assert.equal(String(socketAddress("fe80::1%eth0")), "fe80::1");
  assert.equal(String(socketAddress("::ffff:127.0.0.1")), "127.0.0.1");
  for (const none of [undefined, "", "/run/a.sock"]) assert.equal(socketAddress(none), undefined);
});
