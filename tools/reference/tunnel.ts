import { endpoints, exitCodes, healthParts, listeners, objects, type Section, section, signals } from "#base/estate";

const CODES = exitCodes(
  ["0", "the program has ended after a signal"],
  ["1", "a flag is wrong, or listening has failed; for the server: also after a second signal"],
);

/** Notes by program. A number that a flag sets is the flag's default. */
export const tunnel: Readonly<Record<string, readonly Section[]>> = {
  "proxy-server": [
    listeners(
      ["`--uds-name`, mode 0770, or `:8090` with mTLS", "frontends: `/ProxyService/Proxy` of gRPC, or HTTP CONNECT"],
      ["`:8091` with TLS", "agents: `/AgentService/Connect` of gRPC"],
      ["`:8092/healthz`", "200 `ok`"],
      [
        "`:8092/readyz`, `/ready`",
        "200 `ok`, or 500 and the reason, such as `no connection to any proxy agent`; `?verbose` lists all checks",
      ],
      ["`:8092/metrics`, `127.0.0.1:8095/metrics`", "metrics in Prometheus' text format"],
      [
        "`127.0.0.1:8095/debug/pprof/`",
        "with `--enable-profiling`: `profile?seconds=30` and `heap`, for Chrome DevTools",
      ],
    ),
    section("Checks of readiness", "name", "fails while")(
      ["`agents`", "the first strategy has no agent, or the server is shutting down"],
      [
        "`frontends`",
        "with `--uds-name`: the socket's file was removed or replaced, and the server cannot listen there again; tried again twice a second",
      ],
      ["`lease`", "with `--enable-lease-controller`: the Lease was never written; later failures are only logged"],
      [
        "`token-review`",
        "with `--agent-service-account`: the API server has never answered a TokenReview; the server tries from its start on",
      ],
    ),
    CODES,
    objects(
      [
        "Lease `<namespace>/konnectivity-proxy-server-<server id>`",
        "with `--enable-lease-controller`: 30 s, renewed every 15 s, deleted at the end; expired Leases with the labels are deleted",
      ],
      ["TokenReview", "created for agents' tokens; an accepted token is cached for 60 s, a refused token for 10 s"],
    ),
  ],
  "sni-router": [
    endpoints(":9398", ":9399"),
    signals(
      ["SIGHUP", "reads `--config` again; connected clients stay with their backends"],
      [
        "SIGTERM, SIGINT",
        "stops listening, is not ready, waits for connections up to `--drain-timeout`; a second signal ends it at once",
      ],
    ),
    healthParts(
      ["`listen`", "an address is not bound, or the program is shutting down"],
      ["`routes`", "the file of `--config` was invalid when it was last read; the old routes stay in use"],
    ),
    section("Outcome of a client: `result`", "result", "meaning")(
      [
        "`routed`",
        "the client is connected to a backend; the name's own route is used first, then a wildcard's, then the default",
      ],
      [
        "`unknown_name`, `no_name`",
        "the name has no route, and there is no default: TLS alert `unrecognized_name`, closed",
      ],
      ["`no_backend`", "no backend could be reached within `--connect-timeout`: TLS alert `internal_error`, closed"],
      [
        "`not_tls`, `too_large`",
        "the client sent no ClientHello, or a ClientHello of more than 16 KiB with its records: closed",
      ],
      ["`timeout`, `gone`", "the client's hello came too late, or it closed the connection before it had a backend"],
      [
        "`overload`",
        "`--max-connections`: the client that has waited longest without a hello is closed, else the new one",
      ],
    ),
  ],
};
