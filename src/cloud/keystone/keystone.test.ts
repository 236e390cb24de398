import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { type Authenticator, CloudError } from "#cloud/rest";
import { FakeService, type GotRequest } from "#test/fake-service";
import { CredentialsError, parseCredentials } from "./credentials.ts";
import { openSession } from "./session.ts";
import { authBody, endpointOf, keystoneFault, parseToken, versionedUrl } from "./token.ts";

const PASSWORD = `
clouds:
  mine:
    auth:
      auth_url: http://127.0.0.1:5000/v3
      username: isthmus
      password: hunter2
      user_domain_name: Default
      project_name: pods
      project_domain_id: default
    region_name: RegionOne
`;

function authOf(text: string): object {
  const { credentials } = parseCredentials(text);
  assert.ok(credentials.kind === "password" || credentials.kind === "application-credential");
  return authBody(credentials);
}

const cloud = (auth: string, more = ""): string => `clouds: {mine: {${more}auth: {${auth}}}}`;

describe("parseCredentials", () => {
  test("a user with a password, by names and by ids, is asked for in the words of Identity API v3", () => {
    assert.deepEqual(authOf(PASSWORD), {
      auth: {
        identity: {
          methods: ["password"],
          password: { user: { name: "isthmus", domain: { name: "Default" }, password: "hunter2" } },
        },
        scope: { project: { name: "pods", domain: { id: "default" } } },
      },
    });
    const byIds = cloud("auth_url: 'https://k/', user_id: u1, password: p, project_id: p1");
    assert.deepEqual(authOf(byIds), {
      auth: {
        identity: { methods: ["password"], password: { user: { id: "u1", password: "p" } } },
        scope: { project: { id: "p1" } },
      },
    });
  });

  test("an application credential has no scope", () => {
    const type = "auth_type: v3applicationcredential, ";
    const byId = cloud("auth_url: 'https://k/', application_credential_id: a1, application_credential_secret: s", type);
    assert.deepEqual(authOf(byId), {
      auth: { identity: { methods: ["application_credential"], application_credential: { id: "a1", secret: "s" } } },
    });
    const byName = cloud(
      "auth_url: 'https://k/', application_credential_name: n, user_id: u1, application_credential_secret: s",
      type,
    );
    assert.deepEqual(authOf(byName), {
      auth: {
        identity: {
          methods: ["application_credential"],
          application_credential: { name: "n", user: { id: "u1" }, secret: "s" },
        },
      },
    });
  });

  /** Settings that openstacksdk 4 accepts (`openstack/config/loader.py`), each with its result. */
  const PASSWORD_BY_IDS = "auth_url: 'https://k/', user_id: u, password: p, project_id: p1";
  for (const [what, text, wanted] of [
    [
      "keys for other programs",
      `${cloud(PASSWORD_BY_IDS, "compute_api_version: '2.1', volume_api_version: 3, floating_ip_source: neutron, networks: [{name: a}], ")}\ncache: {expiration_time: 3600}\nclient: {force_ipv4: true}\n`,
      {},
    ],
    ["endpoint_type", cloud(PASSWORD_BY_IDS, "endpoint_type: internalURL, "), { interface: "internal" }],
    ["interface with URL", cloud(PASSWORD_BY_IDS, "interface: adminURL, "), { interface: "admin" }],
    [
      "numbers for texts",
      cloud(
        "auth_url: 'https://k/', username: 1001, password: 123456, user_domain_id: 7, project_id: 99",
        "region_name: 1, ",
      ),
      { region: "1" },
    ],
    ["version 3 as a number with a point", cloud(PASSWORD_BY_IDS, "identity_api_version: 3.0, "), {}],
    ["version 3 as a text", cloud(PASSWORD_BY_IDS, "identity_api_version: '3', "), {}],
    [
      "a domain said once",
      cloud("auth_url: 'https://k/', username: u, password: p, project_name: n, domain_name: d"),
      {},
    ],
    [
      "a default domain",
      cloud("auth_url: 'https://k/', username: u, password: p, project_name: n, default_domain_id: default"),
      {},
    ],
    [
      "the tenant of version 2",
      cloud(
        "auth_url: 'https://k/', username: u, password: p, tenant_name: n, user_domain_id: d, project_domain_id: d",
      ),
      {},
    ],
    [
      "names with hyphens",
      cloud("auth-url: 'https://k/', user-id: u, password: p, project-id: p1", "region-name: r, "),
      { region: "r" },
    ],
    ["fields beside auth", "clouds: {a: {auth_url: 'https://k/', user_id: u, password: p, project_id: p1}}", {}],
    ["a list of regions", cloud(PASSWORD_BY_IDS, "regions: [one, two], "), { region: "one" }],
    ["regions with values", cloud(PASSWORD_BY_IDS, "regions: [{name: one, values: {x: 1}}], "), { region: "one" }],
    ["insecure", cloud(PASSWORD_BY_IDS, "insecure: true, "), { verifiesTls: false }],
    ["verify as a text", cloud(PASSWORD_BY_IDS, "verify: 'False', "), { verifiesTls: false }],
    ["verify of YAML 1.1", cloud(PASSWORD_BY_IDS, "verify: no, "), { verifiesTls: false }],
    [
      "fields that are there and empty",
      cloud(`${PASSWORD_BY_IDS}, user_domain_name: '', token: null`, "region_name: '', cacert: null, "),
      {},
    ],
    [
      "an application credential without auth_type",
      cloud("auth_url: 'https://k/', application_credential_id: a, application_credential_secret: s"),
      {},
    ],
    ["a token of an administrator", cloud("endpoint: 'http://n:9696', token: t", "auth_type: admin_token, "), {}],
    ["a token without auth_type", cloud("endpoint: 'http://n:9696', token: t"), {}],
    ["no authentication", cloud("endpoint: 'http://n:9696'", "auth_type: noauth, "), {}],
    [
      "anchors",
      "x: &a {auth_url: 'https://k/', user_id: u, password: p, project_id: p1}\nclouds: {a: {auth: *a, profile: mine}}\n",
      {},
    ],
  ] as const)
    test(`${what}: taken as openstacksdk takes it`, () => {
      const { credentials, caFile, ...rest } = parseCredentials(text);
      assert.deepEqual(rest, { region: undefined, interface: "public", verifiesTls: true, ...wanted });
      assert.equal(caFile, undefined);
      if (credentials.kind === "password" || credentials.kind === "application-credential")
        assert.ok(authBody(credentials));
    });

  test("a domain that is said once is that of user and project; digits are a text", () => {
    const { credentials } = parseCredentials(
      cloud("auth_url: 'https://k/', username: 1001, password: 123456, project_name: n, domain_name: d"),
    );
    const domain = { name: "d" };
    assert.deepEqual(credentials, {
      kind: "password",
      authUrl: new URL("https://k/"),
      user: { name: "1001", domain, password: "123456" },
      project: { name: "n", domain },
    });
  });

  for (const [what, text, says] of [
    ["no YAML", "{", /the credentials are not YAML/],
    ["no cloud", "clouds: {}", /clouds: must have one cloud, has 0/],
    ["two clouds", `clouds: {a: {auth: {}}, b: {auth: {}}}`, /must have one cloud, has 2/],
    [
      "a key with a mistake",
      cloud("auth_url: 'https://k/', user_id: u, project_id: p, pasword: x"),
      /clouds\.mine\.auth\.password: is missing/,
    ],
    ["a client certificate", cloud("auth_url: 'https://k/'", "cert: /c, "), /clouds\.mine\.cert: is not supported/],
    ["version 2", cloud("auth_url: 'https://k/'", "identity_api_version: 2, "), /identity_api_version: must be 3/],
    [
      "no password",
      cloud("auth_url: 'https://k/', user_id: u, project_id: p"),
      /clouds\.mine\.auth\.password: is missing/,
    ],
    [
      "a name without a domain",
      cloud("auth_url: 'https://k/', username: u, password: p, project_id: p"),
      /user_domain_name: is missing/,
    ],
    ["no project", cloud("auth_url: 'https://k/', user_id: u, password: p"), /project_name: is missing/],
    ["a URL that is none", cloud("auth_url: keystone, user_id: u"), /auth_url: must be a URL with http or https/],
    ["another kind", cloud("auth_url: 'https://k/'", "auth_type: v2password, "), /auth_type: must be one of password/],
    ["a token without endpoint", cloud("token: t", "auth_type: token, "), /auth\.endpoint: is missing/],
    [
      "an empty password",
      cloud("auth_url: 'https://k/', user_id: u, project_id: p, password: ''"),
      /password: is missing/,
    ],
  ] as const)
    test(`${what} is refused with its field`, () => {
      assert.throws(
        () => parseCredentials(text),
        (error) => error instanceof CredentialsError && says.test(error.message),
      );
    });

  test("whatever the file, the only error is ours, and no secret is in it", () => {
    const value = fc.oneof(fc.string(), fc.constant("hunter2"), fc.integer(), fc.constant(null), fc.constant([]));
    const auth = fc.dictionary(
      fc.constantFrom("auth_url", "username", "password", "user_id", "project_id", "token", "x"),
      value,
    );
    fc.assert(
      fc.property(auth, fc.anything(), (some, other) => {
        for (const one of [{ clouds: { c: { auth: some } } }, { clouds: other }, other]) {
          try {
            parseCredentials(JSON.stringify(one) ?? "");
          } catch (error) {
            assert.ok(error instanceof CredentialsError, String(error));
            assert.ok(!error.message.includes("hunter2"), error.message);
          }
        }
      }),
    );
  });
});

describe("endpointOf", () => {
  const catalog = [
    { type: "identity", endpoints: [{ interface: "public", region: "One", url: "http://k" }] },
    {
      type: "network",
      endpoints: [
        { interface: "internal", region: "One", url: "http://n.internal:9696" },
        { interface: "public", region: "One", url: "http://n.one:9696/" },
        { interface: "public", region: "Two", url: "http://n.two:9696/v2.0" },
      ],
    },
  ];
  const choose = (region?: string, face = "public"): string =>
    endpointOf({ catalog }, { type: "network", interface: face, region }).href;

  test("region and interface choose (T-10)", () => {
    assert.equal(choose("One"), "http://n.one:9696/");
    assert.equal(choose("Two"), "http://n.two:9696/v2.0");
    assert.equal(choose(undefined, "internal"), "http://n.internal:9696/");
  });

  test("what is not there, or is there in several regions, is named", () => {
    assert.throws(() => choose(), /region_name must say which region: One, Two/);
    assert.throws(
      () => choose("Three"),
      /no URL of service network, interface public, region Three: it has internal in One, public in One, public in Two/,
    );
    assert.throws(
      () => endpointOf({ catalog: [] }, { type: "network", interface: "public", region: undefined }),
      /it has none/,
    );
  });
});

test("versionedUrl: the version is there once, however the URL was written", () => {
  for (const text of ["http://k:5000", "http://k:5000/", "http://k:5000/v3", "http://k:5000/v3/"])
    assert.equal(versionedUrl(new URL(text)).href, "http://k:5000/v3");
  assert.equal(versionedUrl(new URL("https://k/identity")).href, "https://k/identity/v3");
});

test("parseToken, keystoneFault: of any answer the only error is ours", () => {
  fc.assert(
    fc.property(fc.option(fc.string(), { nil: undefined }), fc.anything(), (token, body) => {
      keystoneFault(body);
      assert.throws(() => parseToken(token, body, 0), CloudError);
      assert.throws(() => parseToken(token, { token: body }, 0), CloudError);
    }),
  );
  assert.deepEqual(keystoneFault({ error: { code: 401, title: "Unauthorized", message: "no" } }), {
    type: "Unauthorized",
    message: "no",
  });
});

describe("openSession", () => {
  const HOUR = 3_600_000;

  async function openBed(t: TestContext, answer?: (request: GotRequest) => ReturnType<FakeService["answer"]>) {
    const clock = new FakeClock();
    let count = 0;
    const issue = () => {
      count += 1;
      const at = clock.now() + 40 * HOUR;
      return {
        status: 201,
        headers: { "X-Subject-Token": `t${count}` },
        body: {
          token: {
            // Keystone's clock is 40 hours ahead.
            issued_at: new Date(at).toISOString(),
            expires_at: new Date(at + HOUR).toISOString(),
            catalog: [
              {
                type: "network",
                endpoints: [{ interface: "public", region_id: "RegionOne", url: "http://neutron:9696" }],
              },
            ],
          },
        },
      };
    };
    const service = await FakeService.open(answer ?? issue);
    const access = parseCredentials(PASSWORD.replace("http://127.0.0.1:5000/v3", service.url.href));
    const refreshes: boolean[] = [];
    const lines: string[] = [];
    const log = createLogger({ name: "test", level: "debug", write: (line) => lines.push(line) });
    const session = openSession(
      { clock, log },
      { access, service: "network", onRefresh: (isDone) => refreshes.push(isDone) },
    );
    t.after(async () => {
      await session[Symbol.asyncDispose]();
      await service[Symbol.asyncDispose]();
    });
    return { clock, service, session, refreshes, issue, lines };
  }
  const tokenOf = async (session: Authenticator): Promise<string> => (await session.headers({}))["x-auth-token"] ?? "";

  test("however many requests need a token, one is asked for (T-10); its catalogue has the endpoint", async (t) => {
    const { session, service, refreshes } = await openBed(t);
    const tokens = await Promise.all(Array.from({ length: 50 }, () => tokenOf(session)));
    assert.deepEqual(new Set(tokens), new Set(["t1"]));
    assert.equal((await session.endpoint({})).href, "http://neutron:9696/");
    assert.deepEqual([service.requests.length, service.requests[0]?.path, refreshes], [1, "/v3/auth/tokens", [true]]);
  });

  test("whatever refusal of Keystone is one of the credentials, never an object of the service that is gone; an outage is one", async (t) => {
    for (const [status, code] of [
      [400, "unauthorized"],
      [401, "unauthorized"],
      [403, "unauthorized"],
      // An application credential that was deleted.
      [404, "unauthorized"],
      [409, "unauthorized"],
      [500, "unavailable"],
      [503, "unavailable"],
    ] as const) {
      const { session } = await openBed(t, () => ({ status, body: { error: { title: "x", message: "the cause" } } }));
      await assert.rejects(session.headers({}), { code, message: /the cause|answered HTTP/ });
      if (code === "unauthorized") await assert.rejects(session.endpoint({}), { code });
    }
    const { session } = await openBed(t, () => ({
      status: 201,
      headers: { "X-Subject-Token": "t" },
      body: { token: { expires_at: new Date(Date.now() + HOUR).toISOString(), catalog: [] } },
    }));
    await assert.rejects(session.endpoint({}), {
      code: "unauthorized",
      message: /catalogue has no URL of service network/,
    });
  });

  test("a token is renewed at 80 % of its life by Keystone's clock, and after it was refused", async (t) => {
    const { session, clock } = await openBed(t);
    assert.equal(await tokenOf(session), "t1");
    await clock.advance(0.8 * HOUR - 1);
    assert.equal(await tokenOf(session), "t1");
    await clock.advance(1);
    assert.equal(await tokenOf(session), "t1", "the old one serves while the new one is asked for");
    while ((await tokenOf(session)) === "t1") await new Promise(setImmediate);
    assert.equal(await tokenOf(session), "t2");
    assert.equal(session.refused({ "x-auth-token": "t1" }), true);
    assert.equal(await tokenOf(session), "t2", "a token that was replaced meanwhile is not asked for again");
    session.refused({ "x-auth-token": "t2" });
    assert.equal(await tokenOf(session), "t3");
  });

  test("a renewal that fails is no failure while the old token lasts; then it is", async (t) => {
    const { session, service, clock, issue, lines, refreshes } = await openBed(t);
    assert.equal(await tokenOf(session), "t1");
    service.answer = () => ({ status: 500, body: { error: { message: "database is away" } } });
    await clock.advance(0.9 * HOUR);
    assert.equal(await tokenOf(session), "t1");
    while (refreshes.length < 2) await new Promise(setImmediate);
    assert.equal(await tokenOf(session), "t1");
    assert.equal(service.requests.length, 2, "it is not tried again with each request");
    assert.match(lines.join(""), /database is away","msg":"the token cannot be renewed"/);
    await clock.advance(0.1 * HOUR);
    await assert.rejects(tokenOf(session), /Cannot authenticate: Keystone at .* answered HTTP 500 database is away/);
    service.answer = issue;
    assert.equal(await tokenOf(session), "t2");
    assert.ok(!lines.join("").includes("hunter2"));
  });

  test("a password that is wrong is told in one line, and to all who wait", async (t) => {
    const { session } = await openBed(t, () => ({
      status: 401,
      body: {
        error: { code: 401, title: "Unauthorized", message: "The request you have made requires authentication." },
      },
    }));
    const ends = await Promise.allSettled([tokenOf(session), tokenOf(session)]);
    for (const end of ends) {
      assert.ok(end.status === "rejected" && end.reason instanceof CloudError);
      assert.match(
        end.reason.message,
        /^Cannot authenticate: Keystone at 127.0.0.1:\d+ answered HTTP 401 Unauthorized The request you have made requires authentication\.$/,
      );
    }
  });

  test("a caller that gives up does not end the authentication of others", async (t) => {
    const { session } = await openBed(t);
    const controller = new AbortController();
    const given = session.headers({ signal: controller.signal });
    const other = tokenOf(session);
    controller.abort(new Error("enough"));
    await assert.rejects(given, /enough/);
    assert.equal(await other, "t1");
  });

  test("a fixed token and no token need no Keystone", async () => {
    const deps = { clock: new FakeClock(), log: createLogger({ name: "test" }) };
    const fixed = parseCredentials(cloud("token: t, endpoint: 'http://n:9696'", "auth_type: token, "));
    await using session = openSession(deps, { access: fixed, service: "network" });
    assert.deepEqual(
      [await tokenOf(session), (await session.endpoint({})).host, session.refused({})],
      ["t", "n:9696", false],
    );
    const none = parseCredentials(cloud("endpoint: 'http://n:9696'", "auth_type: none, "));
    await using open = openSession(deps, { access: none, service: "network" });
    assert.deepEqual(await open.headers({}), {});
  });
});
