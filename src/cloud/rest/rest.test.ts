import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { createLogger } from "#base/log";
import { boundedWork } from "#test/bounded-work";
import { FakeService } from "#test/fake-service";
import { Circuit } from "./circuit.ts";
import { CloudError, type CloudErrorCode } from "./errors.ts";
import { redact, redactText } from "./redact.ts";
import { type Authenticator, RestClient, type RestSample, retryAfterMs } from "./rest-client.ts";

const GET = { method: "GET", path: "/things", action: "list things", operation: "list-things" } as const;

interface Bed {
  readonly service: FakeService;
  readonly rest: RestClient;
  readonly samples: RestSample[];
  readonly lines: string[];
}

async function openBed(
  t: TestContext,
  answer: FakeService["answer"],
  auth: Partial<Authenticator> = {},
  clock = systemClock,
): Promise<Bed> {
  const service = await FakeService.open(answer);
  const samples: RestSample[] = [];
  const lines: string[] = [];
  const log = createLogger({ name: "test", level: "debug", write: (line) => lines.push(line) });
  const given = {
    endpoint: async () => new URL("base/", service.url),
    headers: async () => ({}),
    refused: () => false,
    ...auth,
  };
  const rest = new RestClient(
    { clock, log, auth: given },
    {
      service: "Things",
      faultOf: (body) => (body as { fault?: { type: string; message: string } } | undefined)?.fault ?? {},
      onRequest: (sample) => samples.push(sample),
    },
  );
  t.after(async () => {
    await rest[Symbol.asyncDispose]();
    await service[Symbol.asyncDispose]();
  });
  return { service, rest, samples, lines };
}

async function failure(work: Promise<unknown>): Promise<CloudError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof CloudError, String(error));
    return error;
  }
  return assert.fail("it has not failed");
}

describe("RestClient", () => {
  test("a request goes below the base URL, with its query in order, and the answer is its JSON", async (t) => {
    const { service, rest, samples, lines } = await openBed(t, () => ({
      status: 200,
      body: { things: [1] },
      headers: { "X-Openstack-Request-Id": "req-7" },
    }));
    const query = [
      ["id", "a"],
      ["id", "b&c"],
      ["limit", "2"],
    ] as const;
    const { status, body } = await rest.send({ ...GET, query });
    assert.deepEqual([status, body], [200, { things: [1] }]);
    assert.equal(service.requests[0]?.path, "/base/things?id=a&id=b%26c&limit=2");
    assert.deepEqual(
      samples.map(({ operation, code, type }) => [operation, code, type]),
      [["list-things", "200", ""]],
    );
    assert.match(lines.join(""), /"requestId":"req-7"/);
  });

  test("of an error page as long as an answer may be only the beginning is read, and no secret in it is shown", async (t) => {
    const page = `token-${"token-".repeat(350_000)}`;
    const { rest } = await openBed(t, () => ({
      status: 502,
      body: { fault: { type: "Bad", message: `password=hunter2 ${page}` } },
    }));
    const error = await failure(rest.send(GET));
    assert.match(error.message, /HTTP 502 Bad password=\[hidden\] token-token-/);
    assert.ok(error.message.length < 600);
  });

  for (const [status, code] of [
    [400, "invalid"],
    [401, "unauthorized"],
    [403, "forbidden"],
    [404, "not-found"],
    [405, "invalid"],
    [408, "unavailable"],
    [409, "conflict"],
    [412, "precondition"],
    [413, "over-limit"],
    [429, "unavailable"],
    [500, "unavailable"],
    [504, "unavailable"],
  ] as const satisfies readonly (readonly [number, CloudErrorCode])[]) {
    test(`HTTP ${status} is ${code}, with the server's own words, request id and pause`, async (t) => {
      const { rest } = await openBed(t, () => ({
        status,
        body: { fault: { type: "Nope", message: "no\nsuch thing" } },
        headers: { "x-openstack-request-id": "req-1", "retry-after": "7" },
      }));
      const error = await failure(rest.send(GET));
      assert.match(
        error.message,
        new RegExp(`^Cannot list things: Things at 127.0.0.1:\\d+ answered HTTP ${status} Nope no such thing$`),
      );
      assert.deepEqual(
        [error.code, error.httpStatus, error.type, error.requestId, error.retryAfterMs],
        [code, status, "Nope", "req-1", 7000],
      );
    });
  }

  test("an answer that is not JSON is a bad response if it says success, and else quoted in part", async (t) => {
    const { rest, service } = await openBed(t, () => ({ status: 200, body: "<html>" }));
    assert.equal((await failure(rest.send(GET))).code, "bad-response");
    service.answer = () => ({ status: 502, body: `<html> password=hunter2 ${"x".repeat(1000)}` });
    const { code, message } = await failure(rest.send(GET));
    assert.equal(code, "unavailable");
    assert.ok(message.length < 600 && !message.includes("hunter2"), message);
  });

  test("a page with 400, 405, 421 or 431 is of a balancer, so the request is tried again; the API's own refusal is one", async (t) => {
    const { rest, service } = await openBed(t, () => ({ status: 200, body: "{}" }));
    for (const status of [400, 405, 421, 431]) {
      service.answer = () => ({ status, body: "<html><h1>Bad request</h1></html>" });
      const page = await failure(rest.send(GET));
      assert.deepEqual([page.code, page.httpStatus, page.isAmbiguous], ["bad-response", status, true]);
      service.answer = () => ({ status, body: '{"NeutronError": "no"}' });
      assert.equal((await failure(rest.send(GET))).code, "invalid");
    }
    service.answer = () => ({ status: 404, body: "<html>" });
    assert.equal((await failure(rest.send(GET))).code, "not-found");
  });

  test("credentials that are refused are replaced once", async (t) => {
    let token = 1;
    const { rest, service } = await openBed(
      t,
      ({ headers }) => (headers["x-auth-token"] === "2" ? { status: 204 } : { status: 401 }),
      {
        headers: async () => ({ "x-auth-token": String(token) }),
        refused: () => {
          token += 1;
          return true;
        },
      },
    );
    assert.equal((await rest.send(GET)).body, undefined);
    assert.equal(service.requests.length, 2);
    token = 5;
    assert.equal((await failure(rest.send(GET))).code, "unauthorized");
    assert.equal(service.requests.length, 4, "not a third time");
  });

  test("a server that does not answer in time, ends the connection or is not there is named", async (t) => {
    const { rest, service } = await openBed(t, () => "hang");
    const late = await failure(rest.send({ ...GET, timeoutMs: 30 }));
    assert.match(`${late.code} ${late.message}`, /^timeout .* did not answer within 30 ms$/);
    service.answer = () => "cut";
    assert.equal((await failure(rest.send(GET))).code, "unreachable");
    await service[Symbol.asyncDispose]();
    const absent = await failure(rest.send(GET));
    assert.match(`${absent.code} ${absent.message}`, /^unreachable .*ECONNREFUSED/);
    assert.ok(late.isAmbiguous && absent.isAmbiguous);
  });

  test("the caller's abort is the caller's, and counts as no failure of the server", async (t) => {
    const { rest } = await openBed(t, () => "hang");
    for (let at = 0; at < 6; at += 1) {
      const controller = new AbortController();
      const sent = rest.send(GET, { signal: controller.signal });
      controller.abort(new Error("enough"));
      await assert.rejects(sent, /enough/);
    }
    assert.equal((await failure(rest.send({ ...GET, timeoutMs: 20 }))).code, "timeout", "the circuit is closed");
  });

  test("after five requests without an answer none is sent for ten seconds, then one that decides", async (t) => {
    const clock = new FakeClock();
    const { rest, service } = await openBed(t, () => "cut", {}, clock);
    for (let at = 0; at < 5; at += 1) assert.equal((await failure(rest.send(GET))).code, "unreachable");
    const refused = await failure(rest.send(GET));
    assert.deepEqual([refused.code, refused.retryAfterMs, refused.isAmbiguous], ["circuit-open", 10_000, false]);
    assert.equal(service.requests.length, 5);
    await clock.advance(10_000);
    service.answer = () => ({ status: 404 });
    assert.equal((await failure(rest.send(GET))).code, "not-found", "any answer closes it");
    assert.equal((await failure(rest.send(GET))).code, "not-found");
  });
});

describe("Circuit", () => {
  test("503 opens it at once; while its one try is under way nothing else is sent; a failed try opens it again", async () => {
    const clock = new FakeClock();
    const changes: boolean[] = [];
    const circuit = new Circuit({ clock }, (isOpen) => changes.push(isOpen));
    circuit.failed(true);
    assert.equal(circuit.admit(), 10_000);
    await clock.advance(10_000);
    assert.equal(circuit.admit(), 0);
    assert.equal(circuit.admit(), 10_000);
    circuit.failed(false);
    assert.equal(circuit.admit(), 10_000);
    await clock.advance(10_000);
    assert.equal(circuit.admit(), 0);
    circuit.abandoned();
    assert.equal(circuit.admit(), 0, "a try that was given up is followed by another");
    circuit.succeeded();
    assert.deepEqual(changes, [true, false]);
    assert.deepEqual([circuit.admit(), circuit.admit()], [0, 0]);
  });

  test("a try without an answer, as a request for many ports can be for a minute, holds up others for ten seconds", async () => {
    const clock = new FakeClock();
    const circuit = new Circuit({ clock });
    circuit.failed(true);
    await clock.advance(10_000);
    assert.equal(circuit.admit(), 0);
    await clock.advance(4000);
    assert.equal(circuit.admit(), 6000);
    await clock.advance(6000);
    assert.deepEqual([circuit.admit(), circuit.admit()], [0, 10_000], "another one is sent beside it");
  });
});

test("retryAfterMs: seconds and dates, bounded; anything else is none", () => {
  const now = Date.parse("2026-01-01T00:00:00Z");
  for (const [text, ms] of [
    [undefined, undefined],
    ["0", 0],
    ["12", 12_000],
    ["100000", 300_000],
    ["Thu, 01 Jan 2026 00:00:05 GMT", 5000],
    ["Thu, 01 Jan 2020 00:00:05 GMT", 0],
    ["soon", undefined],
    ["-3", undefined],
  ] as const)
    assert.equal(retryAfterMs(text, now), ms, text);
});

describe("redact", () => {
  test("values of secrets are hidden at any depth, whatever the case of their names; the rest stays", () => {
    const body = {
      auth: { identity: { methods: ["password"], password: { user: { name: "nova", Password: "hunter2" } } } },
      headers: { "X-Auth-Token": "gAAAA", "x-subject-token": "gBBBB" },
      application_credential: { id: "7", secret: "s3" },
      note: "password=hunter3; fine",
    };
    const text = JSON.stringify(redact(body));
    for (const secret of ["hunter2", "hunter3", "gAAAA", "gBBBB", "s3"])
      assert.ok(!text.includes(secret), `${secret} in ${text}`);
    for (const kept of ["nova", "methods", "fine", '"id":"7"']) assert.ok(text.includes(kept), kept);
  });

  test("any secret without white space, quoted or not, is hidden in any text", () => {
    const word = fc.stringMatching(/^[A-Za-z0-9+/]{12,20}$/);
    fc.assert(
      fc.property(
        word,
        fc.constantFrom("password", "X-Auth-Token", "client_secret", "OS_PASSWORD"),
        fc.constantFrom("=", ": ", '": "', " = "),
        fc.string(),
        (secret, name, join, before) => {
          assert.ok(!redactText(`${before} ${name}${join}${secret}`).includes(secret));
        },
      ),
    );
  });

  test("any text is read in one pass", () => {
    for (const text of [
      "token".repeat(200_000),
      `password${" ".repeat(1_000_000)}`,
      `${"password  ".repeat(100_000)}=`,
      `secret="${"\\".repeat(1_000_001)}`,
      "-".repeat(1_000_000),
    ])
      assert.equal(boundedWork(() => redactText(text)).startsWith(text.slice(0, 6)), true);
    assert.equal(redactText('a "token" : "b\\"c", d; secret=\'e'), 'a "token" : [hidden], d; secret=[hidden]');
  });

  test("structures that are too deep are cut", () => {
    let deep: unknown = "end";
    for (let at = 0; at < 100; at += 1) deep = { deep };
    assert.ok(JSON.stringify(redact(deep)).length < 400);
  });
});
