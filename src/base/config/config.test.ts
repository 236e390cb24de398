import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  addressFlag,
  ConfigError,
  choiceFlag,
  durationFlag,
  flagHelp,
  flagReference,
  formatDuration,
  formatListenAddress,
  ignoredFlag,
  ignoredGiven,
  integerFlag,
  listFlag,
  optionalFlag,
  parseDuration,
  parsedFlag,
  parseFlags,
  parseListenAddress,
  stringFlag,
  switchFlag,
  TIMER_MAX,
} from "./index.ts";

const flags = {
  health: addressFlag("health-addr", ":9385", "address of /healthz"),
  gc: durationFlag("gc-interval", "1h", "how often"),
  table: integerFlag("table-id", 119, "routing table", { min: 1, max: 252 }),
  mode: choiceFlag("mode", ["fast", "safe"], "safe", "how"),
  compat: switchFlag("compat", false, "be compatible"),
  socket: stringFlag("socket", "/run/x.sock", "where", "PATH"),
  kubeconfig: optionalFlag("kubeconfig", "credentials", "FILE"),
  label: listFlag("label", "labels", "K=V"),
  even: parsedFlag(
    "even",
    (text) => {
      if (Number(text) % 2 !== 0) throw new ConfigError("invalid-value", [`${text} is odd`]);
      return Number(text);
    },
    "an even number",
    "N",
  ),
};

test("parseFlags: without arguments every value is its default", () => {
  const { values, words, given } = parseFlags(flags, []);
  assert.deepEqual(values, {
    health: { port: 9385 },
    gc: 3_600_000,
    table: 119,
    mode: "safe",
    compat: false,
    socket: "/run/x.sock",
    kubeconfig: undefined,
    label: [],
    even: undefined,
  });
  assert.deepEqual([words, given.size], [[], 0]);
  assert.ok(Object.isFrozen(values));
});

test("parseFlags: --name=value, --name value, -name, switches and repeated flags", () => {
  const argv = [
    "--gc-interval=30m",
    "--table-id",
    "7",
    "-mode",
    "fast",
    "--compat",
    "--label=a=1",
    "--label",
    "b=2",
    "--even=4",
    "--socket=",
  ];
  const { values, given } = parseFlags(flags, argv);
  assert.deepEqual(
    [values.gc, values.table, values.mode, values.compat, values.label, values.even, values.socket],
    [1_800_000, 7, "fast", true, ["a=1", "b=2"], 4, ""],
  );
  assert.ok(given.has("table-id") && !given.has("health-addr"));
  assert.equal(parseFlags(flags, ["--compat", "--compat=false"]).values.compat, false);
});

test("parseFlags: all faults are reported together, each with its flag", () => {
  const argv = [
    "--table-id=999",
    "--mode=slow",
    "--gc-interval",
    "soon",
    "--compat=maybe",
    "--even=3",
    "--nope",
    "stray",
    "--kubeconfig",
  ];
  assert.throws(
    () => parseFlags(flags, argv),
    (error) => {
      assert.ok(error instanceof ConfigError);
      assert.equal(error.code, "invalid-flags");
      assert.deepEqual(error.faults, [
        '--table-id: "999" is not a whole number from 1 to 252',
        '--mode: "slow" is not one of fast, safe',
        '--gc-interval: "soon" is not a duration; examples are 300ms, 10s and 1h30m',
        '--compat: "maybe" is neither true nor false',
        "--even: 3 is odd",
        "unknown flag --nope (did you mean --mode?)",
        "--kubeconfig needs a value: FILE",
        'unexpected "stray"',
      ]);
      return true;
    },
  );
});

test("parseFlags: a near miss is suggested, a far one is not", () => {
  assert.throws(() => parseFlags(flags, ["--gc-intervall=1s"]), { message: /did you mean --gc-interval\?/ });
  assert.throws(() => parseFlags(flags, ["--something-else=1s"]), { message: "unknown flag --something-else" });
});

test("parseFlags: words: as many as allowed, all after --, a command line of its own after the first", () => {
  assert.deepEqual(parseFlags(flags, ["a", "--compat", "b"], { maxWords: 2 }).words, ["a", "b"]);
  assert.deepEqual(parseFlags(flags, ["--", "--compat"], { maxWords: 1 }).words, ["--compat"]);
  const { words, values } = parseFlags(flags, ["--compat", "exec", "--mode=fast", "-x"], { stopAtWord: true });
  assert.deepEqual([words, values.mode, values.compat], [["exec", "--mode=fast", "-x"], "safe", true]);
});

test("parseFlags: any command line is parsed or refused with a ConfigError", () => {
  const word = fc.oneof(
    fc.string(),
    fc.constantFrom(
      "--",
      "-",
      "--label",
      "--table-id",
      "--compat=1",
      "--gc-interval=1s",
      "--__proto__=1",
      "--constructor",
    ),
  );
  fc.assert(
    fc.property(fc.array(word, { maxLength: 8 }), fc.boolean(), (argv, stopAtWord) => {
      try {
        parseFlags(flags, argv, { stopAtWord });
      } catch (error) {
        assert.ok(error instanceof ConfigError, String(error));
      }
    }),
    { numRuns: 1000 },
  );
});

test("parseDuration: reads what Go's time.ParseDuration reads", () => {
  const cases: Record<string, number> = {
    "0": 0,
    "0s": 0,
    "1h": 3_600_000,
    "1h30m": 5_400_000,
    "1h0m0s": 3_600_000,
    "300ms": 300,
    "1.5s": 1500,
    ".5s": 500,
    "1.s": 1000,
    "1us": 1e-3,
    "1\u00b5s": 1e-3,
    "1\u03bcs": 1e-3,
    "2ns": 2e-6,
    "1m1ms": 60_001,
  };
  for (const [text, ms] of Object.entries(cases)) assert.equal(parseDuration(text), ms, text);
  for (const text of ["", "1", "s", "1x", "-1s", "1s ", " 1s", "1h-1m", ".s", "1d"]) {
    assert.throws(() => parseDuration(text), { code: "invalid-value" }, text);
  }
});

test("formatDuration: as Go prints, and parseDuration reads it back", () => {
  const shown = [0, 300, 10_000, 300_000, 3_600_000, 5_400_000, 1500].map(formatDuration);
  assert.deepEqual(shown, ["0s", "300ms", "10s", "5m0s", "1h0m0s", "1h30m0s", "1.5s"]);
  fc.assert(fc.property(fc.nat(1e10), (ms) => assert.equal(parseDuration(formatDuration(ms)), ms)));
});

test("parseListenAddress: ports, hosts and brackets; the text round trips", () => {
  assert.deepEqual(parseListenAddress(":9384"), { port: 9384 });
  assert.deepEqual(parseListenAddress("127.0.0.1:0"), { host: "127.0.0.1", port: 0 });
  assert.deepEqual(parseListenAddress("[::1]:65535"), { host: "::1", port: 65535 });
  for (const text of ["", "9384", "::1:80", ":65536", "host:", "[::1]", "a:b:1", "[x]:1"]) {
    assert.throws(() => parseListenAddress(text), ConfigError, text);
  }
  const host = fc.oneof(
    fc.ipV4(),
    fc.ipV6().filter((ip) => !ip.includes("%")),
    fc.domain(),
  );
  const address = fc.record({ host, port: fc.nat(65535) }, { noNullPrototype: true });
  fc.assert(fc.property(address, (one) => assert.deepEqual(parseListenAddress(formatListenAddress(one)), one)));
});

test("flagHelp and flagReference: every flag once, with its default", () => {
  const help = flagHelp(flags, 100);
  for (const flag of Object.values(flags)) assert.equal(help.split(`--${flag.name} `).length, 2, flag.name);
  assert.match(help, /--table-id N +routing table \(default 119\)/);
  assert.match(flagReference(flags), /\| `--mode fast\\\|safe` \| `safe` \| how \|/);
});

test("durationFlag: less than min and more than max are refused, and both ends are taken", () => {
  const set = { wait: durationFlag("wait", "1s", "how long", { min: "1ms", max: TIMER_MAX }) };
  assert.equal(parseFlags(set, ["--wait=1ms"]).values.wait, 1);
  const most = parseFlags(set, [`--wait=${TIMER_MAX}`]).values.wait;
  assert.ok(most < 2 ** 31 && most + 3_600_000 > 2 ** 31, "the last whole hour that a timer holds");
  for (const text of ["0s", "0.9ms", "596h0.001s", "1300h"]) {
    assert.throws(
      () => parseFlags(set, [`--wait=${text}`]),
      /wait.*too (short: the minimum is 1ms|long: the maximum is 596h)/,
      text,
    );
  }
});

test("ignoredFlag: takes every value, is named in one line of the help and after the table, and says what to use instead", () => {
  const flags = {
    level: stringFlag("level", "", "level of the log"),
    colour: ignoredFlag("colour"),
    logDir: ignoredFlag("log-dir", { placeholder: "DIR", instead: "--level" }),
  };
  const { values } = parseFlags(flags, ["--log_dir", "--colour", "--colour=odd"]);
  assert.deepEqual(ignoredGiven(flags, values), ["--colour", "--log-dir (use --level)"]);
  assert.deepEqual(ignoredGiven(flags, parseFlags(flags, []).values), []);
  assert.match(flagHelp(flags, 100), /level of the log\n {2}accepted without effect: --colour, --log-dir$/);
  assert.match(flagReference(flags), /level of the log \|\n\nAccepted without effect.*: `--colour`, `--log-dir`\.$/);
});
