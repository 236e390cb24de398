import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { formatHostPort } from "#wire/http-connect";
import { AVOID_MS, BackendOrder } from "./backends.ts";
import { parseRouteFile, RouteTable, SniRouterError } from "./index.ts";
import { normalizePattern, parseRouteFlag, type Route } from "./routes.ts";

const route = (text: string): Route => ({ ...parseRouteFlag(text), proxyProtocol: false });
const defaultRoute: Route = { name: "default", backends: [{ host: "d", port: 1 }], proxyProtocol: false };

test("RouteTable: a name's own route comes before the wildcard's, and that before the default", () => {
  const routes = [route("a.example.com=h:1"), route("*.example.com=h:2"), route("*.b.example.com=h:3")];
  const table = new RouteTable([{ routes, defaultRoute }]);
  const cases: Readonly<Record<string, string>> = {
    "a.example.com": "a.example.com",
    "A.Example.COM.": "a.example.com",
    "c.example.com": "*.example.com",
    "b.example.com": "*.example.com",
    "x.b.example.com": "*.b.example.com",
    "x.y.b.example.com": "default",
    "example.com": "default",
    ".example.com": "default",
    "*.example.com": "default",
    "example.com.": "default",
    other: "default",
    ["__proto__"]: "default",
  };
  for (const [name, expected] of Object.entries(cases)) assert.equal(table.lookup(name)?.name, expected, name);
  assert.equal(table.lookup(undefined)?.name, "default");
  assert.equal(new RouteTable([{ routes }]).lookup("other"), undefined);
  assert.equal(new RouteTable([{ routes }]).lookup(undefined), undefined);
});

test("RouteTable: two routes of a name, two defaults and no route at all are refused", () => {
  const one = { routes: [route("a=h:1")] };
  assert.throws(() => new RouteTable([one, one]), { code: "invalid-routes", message: /the name a has two routes/ });
  assert.throws(
    () =>
      new RouteTable([
        { routes: [], defaultRoute },
        { routes: [], defaultRoute },
      ]),
    /two default/,
  );
  assert.throws(() => new RouteTable([{ routes: [] }]), /no routes are defined/);
});

test("normalizePattern: DNS names and one leading wildcard, nothing else", () => {
  const good = { "A.b.": "a.b", "*.A": "*.a", "x-1.y_z": "x-1.y_z", localhost: "localhost" };
  for (const [text, expected] of Object.entries(good)) assert.equal(normalizePattern(text), expected);
  for (const text of ["", ".", "*", "*.", "a*.b", "a.*.b", "*.*.a", "-a", "a-", "a..b", "a b", "a/b", "\u00e4"]) {
    assert.equal(normalizePattern(text), undefined, text);
  }
  assert.equal(normalizePattern(`${"a".repeat(64)}.b`), undefined);
});

test("parseRouteFlag: name and backends; faults are quoted", () => {
  assert.deepEqual(parseRouteFlag("*.A.example=10.0.0.1:8091,[::1]:1"), {
    name: "*.a.example",
    backends: [
      { host: "10.0.0.1", port: 8091 },
      { host: "::1", port: 1 },
    ],
  });
  for (const text of ["", "a", "=h:1", "a=", "a=h", "a=h:1,", "a=h:0", "a b=h:1", `a=${"h:1,".repeat(64)}h:1`]) {
    assert.throws(() => parseRouteFlag(text), SniRouterError, text);
  }
  assert.throws(() => parseRouteFlag("a=h:1,h"), { message: '"h" is not HOST:PORT or [IPv6]:PORT' });
});

test("BackendOrder: round robin, and a backend that failed comes last for a while", async () => {
  const clock = new FakeClock();
  const order = new BackendOrder(clock);
  const three = route("a=x:1,y:1,z:1");
  const hosts = (): string =>
    order
      .next(three)
      .map(({ host }) => host)
      .join("");
  assert.deepEqual([hosts(), hosts(), hosts(), hosts()], ["xyz", "yzx", "zxy", "xyz"]);
  const [x = assert.fail()] = three.backends;
  assert.deepEqual([order.failed(x), order.failed(x)], [true, false]);
  assert.deepEqual([hosts(), hosts(), hosts()], ["yzx", "zyx", "yzx"]);
  await clock.advance(AVOID_MS);
  assert.deepEqual([hosts(), hosts(), hosts()], ["yzx", "zxy", "xyz"]);
  assert.deepEqual([order.connected(x), order.connected(x)], [true, false]);
  order.failed(x);
  order.keepOnly(new RouteTable([{ routes: [route("b=y:1")] }]));
  assert.equal(order.connected(x), false);
});

const FILE = `# routes of two clusters
routes:
  - names: [a.example.com, "*.A.example.com"]
    backends: &ours ["10.0.0.1:8091", "[2001:db8::1]:8091"]
    proxyProtocol: true
  - names:
      - b.example.com
    backends: [proxy.b:8091]
default:
  backends: *ours
`;

test("parseRouteFile: every name has a route of its own, anchors work, the default is optional", () => {
  const set = parseRouteFile(FILE, "f");
  const shown = [...set.routes, ...(set.defaultRoute === undefined ? [] : [set.defaultRoute])].map(
    ({ name, backends, proxyProtocol }) => `${name} ${backends.map(formatHostPort).join(",")} ${proxyProtocol}`,
  );
  assert.deepEqual(shown, [
    "a.example.com 10.0.0.1:8091,[2001:db8::1]:8091 true",
    "*.a.example.com 10.0.0.1:8091,[2001:db8::1]:8091 true",
    "b.example.com proxy.b:8091 false",
    "default 10.0.0.1:8091,[2001:db8::1]:8091 false",
  ]);
  assert.equal(parseRouteFile("routes: []", "f").defaultRoute, undefined);
});

test("parseRouteFile: each fault is reported with file, line and field, in one line", () => {
  const cases: Readonly<Record<string, RegExp>> = {
    "": /^f:1: the file must be a mapping of routes, default$/,
    "[]": /^f:1: the file must be a mapping/,
    "routes: {}": /^f:1: routes must be a list$/,
    "routes:\n": /^f:1: routes must be a list$/,
    "route: []": /^f:1: route is not a known field; the fields are routes, default$/,
    "routes:\n  - a": /^f:2: routes\[0\] must be a mapping of names, backends, proxyProtocol$/,
    "routes:\n  - names: [a]": /^f:2: routes\[0\] needs backends, a list of at least one$/,
    "routes:\n  - backends: ['h:1']": /^f:2: routes\[0\] needs names, a list of at least one$/,
    "routes:\n  - names: []\n    backends: ['h:1']": /^f:2: routes\[0\].names must have at least one entry$/,
    "routes:\n  - names: a\n    backends: ['h:1']": /^f:2: routes\[0\].names must be a list$/,
    "routes:\n  - names: [a]\n    backends: ['h:1',\n     'h']": /^f:4: routes\[0\].backends\[1\] "h" is not HOST:PORT/,
    "routes:\n  - names: [a]\n    backends: [8091]": /^f:3: routes\[0\].backends\[0\] must be a text$/,
    "routes:\n  - names: [a]\n    backends: [~]": /^f:3: routes\[0\].backends\[0\] must be a text$/,
    "routes:\n  - names: ['a.*']\n    backends: ['h:1']":
      /^f:2: routes\[0\].names\[0\] "a.\*" is neither a server name/,
    "routes:\n  - names: [*.a]\n    backends: ['h:1']": /^f:2: .*\*\.a|^f:2: .*alias/i,
    "routes:\n  - names: [a]\n    backends: ['h:1']\n    proxyProtocol: v2":
      /^f:4: .*proxyProtocol must be true or false$/,
    "routes:\n  - names: [a, A.]\n    backends: ['h:1']": /^f:2: routes\[0\].names\[1\] a already has a route$/,
    "routes:\n  - names: [a]\n   backends: ['h:1']": /^f:3: /,
    "routes: []\nroutes: []": /^f:2: .*unique/,
    "default:\n  backends: ['h:1']\n  names: [a]":
      /^f:3: default.names is not a known field; the fields are backends, proxyProtocol$/,
    "default: 5": /^f:1: default must be a mapping of backends, proxyProtocol$/,
    "default: [5]": /^f:1: default must be a mapping of backends, proxyProtocol$/,
    "default:\n": /^f:1: default must be a mapping of backends, proxyProtocol$/,
    "default:\n  proxyProtocol: true": /^f:2: default needs backends, a list of at least one$/,
    "default:\n  backends: ['h:1']\n  proxyProtocol:\n": /^f:3: default.proxyProtocol must be true or false$/,
    "a: 1\nb: 2":
      /^f:1: a is not a known field; the fields are routes, default; f:2: b is not a known field; the fields are routes, default$/,
    "routes:\n  - &r\n    names: [a]\n    backends: [h]\n  - *r":
      /^f:3: routes\[1\].names\[0\] a already has a route; f:4: routes\[0\].backends\[0\] "h" is not /,
    "routes:\n  - names: [a]\n    backends: [h]\n  - names: [a]\n    backends: ['h:1']":
      /^f:3: routes\[0\].backends\[0\] "h" is not HOST:PORT or \[IPv6\]:PORT; f:4: routes\[1\].names\[0\] a already has a route$/,
    [`default:\n  backends: [${"'h:1', ".repeat(65)}]`]: /^f:2: default.backends must have at most 64 entries$/,
  };
  for (const [text, expected] of Object.entries(cases)) {
    assert.throws(
      () => parseRouteFile(text, "f"),
      (error) => {
        assert.ok(error instanceof SniRouterError, String(error));
        assert.match(error.message, expected, JSON.stringify(text));
        assert.doesNotMatch(error.message, /\n/);
        return true;
      },
      JSON.stringify(text),
    );
  }
});

test("parseRouteFile: names are bounded, aliases are not", () => {
  const named = (count: number): string =>
    `routes:\n  - names: [${Array.from({ length: count }, (_, at) => `n${at}`).join(", ")}]\n    backends: ['h:1']`;
  assert.equal(parseRouteFile(named(10_000), "f").routes.length, 10_000);
  assert.throws(() => parseRouteFile(named(10_001), "f"), {
    message: "f:2: routes[0].names[10000] exceeds the number of names: the maximum is 10000",
  });
  const shared = `- names: [n]\n  backends: &b ['h:1']\n${Array.from({ length: 500 }, (_, at) => `- names: [n${at}]\n  backends: *b\n`).join("")}`;
  assert.equal(parseRouteFile(`routes:\n${shared}`, "f").routes.length, 501);
});

test("parseRouteFile: of many faults some are reported and the rest counted", () => {
  const text = `routes:\n${"  - names: [a b]\n    backends: ['h']\n".repeat(10)}`;
  assert.throws(() => parseRouteFile(text, "f"), { message: /^(f:\d+: [^;]*; ){5}and 15 other faults$/ });
});

test("parseRouteFile: any text gives routes or a SniRouterError of one line (fuzz)", () => {
  const word = fc.constantFrom(
    "routes",
    "default",
    "names",
    "backends",
    "proxyProtocol",
    "a",
    "h:1",
    "'h:1'",
    "*a",
    "&a",
  );
  const mark = fc.constantFrom(
    ": ",
    "\n",
    "\n  ",
    "\n    ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    ", ",
    "?",
    "!!",
    "|",
    "<<",
    "\t",
    "#",
  );
  const text = fc.array(fc.oneof(word, mark), { maxLength: 30 }).map((parts) => parts.join(""));
  const lines = FILE.split("\n");
  const mixed = fc.shuffledSubarray(lines).map((some) => some.join("\n"));
  fc.assert(
    fc.property(fc.oneof(text, mixed, fc.string()), (input) => {
      try {
        for (const { backends } of parseRouteFile(input, "f").routes) assert.ok(backends.length > 0);
      } catch (error) {
        assert.ok(error instanceof SniRouterError, String(error));
        assert.doesNotMatch(error.message, /\n/);
      }
    }),
    { numRuns: 2000 },
  );
});
