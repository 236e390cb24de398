import {
  endpoints,
  exitCodes,
  kernel,
  listeners,
  metrics,
  objects,
  ownMetrics,
  type Section,
  section,
  signals,
} from "./section.ts";

const CODES = exitCodes(
  ["0", "it was told to end, and did"],
  ["1", "a flag is wrong, or an address cannot be had; the server: also at a second signal"],
);

/** Metrics of the tunnel, all under upstream's prefix; several names share a row. */
const tunnelMetrics = (...rows: readonly (readonly string[])[]): Section =>
  metrics(
    ...rows.map(([names = "", ...rest]) => [
      names
        .split(", ")
        .map((name) => `\`konnectivity_network_proxy_${name}\``)
        .join(", "),
      ...rest,
    ]),
  );

/** By program. Numbers are defaults where a flag sets them. */
export const tunnel: Readonly<Record<string, readonly Section[]>> = {
  "proxy-server": [
    listeners(
      ["`--uds-name`, mode 0770, or `:8090` with mTLS", "frontends: `/ProxyService/Proxy` of gRPC, or HTTP CONNECT"],
      ["`:8091` with TLS", "agents: `/AgentService/Connect` of gRPC"],
      ["`:8092/healthz`", "200 `ok`"],
      [
        "`:8092/readyz`, `/ready`",
        "200 `ok`, or 500 and why, such as `no connection to any proxy agent`; `?verbose` lists all checks",
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
        "`lease`",
        "with `--enable-lease-controller`: the Lease has not been written once; later failures are in the log",
      ],
      [
        "`token-review`",
        "with `--agent-service-account`: the API server has not judged a token once, which is tried from the start on",
      ],
    ),
    CODES,
    objects(
      [
        "Lease `<namespace>/konnectivity-proxy-server-<server id>`",
        "with `--enable-lease-controller`: 30 s, renewed every 15 s, deleted at the end; expired ones of the label are collected",
      ],
      ["TokenReview", "created for agents' tokens; an accepted one is believed for 60 s, a refused one for 10 s"],
    ),
    tunnelMetrics(
      ["server_dial_duration_seconds", "", "histogram: from a dial to the agent's answer"],
      ["server_frontend_write_duration_seconds", "", "histogram: writes to frontends"],
      ["server_connection_duration_seconds", "", "histogram: how long connections lasted"],
      ["server_grpc_connections", "`service_method` (`Proxy`, `Connect`)", "open gRPC streams"],
      ["server_http_connections", "", "open HTTP CONNECT connections"],
      ["server_pending_backend_dials", "", "dials without an answer"],
      ["server_established_connections", "", "open connections"],
      ["server_ready_backends", "`proxy_strategy`", "agents that each strategy could use"],
      ["server_ready_backend_connections", "", "streams of agents; deprecated"],
      ["server_full_receive_channels", "`service_method`", "slow readers that hold a stream up now"],
      [
        "server_dial_failure_count",
        "`reason` (`no_agent`, `error_response`, `unrecognized_response`, `send_rsp`, `backend_close`, `backend_dial_timeout`, `frontend_close`)",
        "failed dials",
      ],
      [
        "server_stream_packets_total",
        "`segment` (`from_client`, `to_client`, `from_agent`, `to_agent`), `packet_type`",
        "packets",
      ],
      ["server_stream_errors_total", "`segment`, `code`, `packet_type`", "gRPC errors of streams"],
      ["server_culled_leases_count", "", "expired Leases deleted"],
      ["server_lease_list_total, server_lease_delete_total", "`http_status_code`, `reason`", "requests about Leases"],
      [
        "server_lease_list_latency_seconds, server_lease_delete_latency_seconds",
        "`http_status_code`",
        "histograms: how long they took",
      ],
      [
        "server_reverse_dials_total",
        "`result` (`ok`, `denied`, `limited`, `dial_error`, `disabled`, `stopping`)",
        "dials by agents",
      ],
      ["server_reverse_connections", "", "open connections from agents to this side"],
      ["server_slow_consumer_closed_total", "", "connections closed because their reader was too slow"],
      ["server_buffered_bytes", "", "bytes that wait to be sent"],
      [
        "server_agent_stream_bytes_total",
        "`direction` (`received`, `sent`)",
        "bytes on the links to agents, TLS included",
      ],
      ["server_build_info", "`version`, `runtime`", "always 1"],
    ),
  ],
  "proxy-agent": [
    listeners(
      ["`:8093/healthz`", "200 `ok`, whatever servers do"],
      ["`:8093/readyz`, `/ready`", "200 `ok`, or 503 and the checks; `?verbose` lists all of them"],
      ["`:8093/metrics`", "metrics in Prometheus' text format; `127.0.0.1:8094/metrics` leads there"],
      [
        "`127.0.0.1:8094/debug/pprof/`",
        "with `--enable-profiling`: `profile?seconds=30` and `heap`, for Chrome DevTools",
      ],
    ),
    section("Checks of readiness", "name", "fails while")(
      ["`ping`", "never: the process answers"],
      ["`server-connected`", "there is no stream to a server"],
      [
        "`reverse-listener`",
        "with `--target`: no connected server serves the direction from nodes to the control plane",
      ],
      ["`bind-interface`", "with `--target`: the bind addresses are not on this node, and cannot be put there"],
      ["`leases`", "with `--count-server-leases`: the Leases have not been read once; later failures are in the log"],
    ),
    CODES,
    kernel(
      [
        "dummy interface `knode0` (`--bind-interface`), alias `ISTHMUS:bind`",
        "holds the bind addresses, /32 with host scope or /128",
      ],
      ["the bind addresses on `lo`", "the same, where the kernel has no dummy interfaces"],
    ),
    tunnelMetrics(
      ["agent_dial_duration_seconds", "", "histogram: connecting to endpoints"],
      ["agent_endpoint_dial_failure_total", "`reason` (`timeout`, `unknown`)", "failed dials"],
      [
        "agent_server_connection_failure_count",
        "`direction` (`from_server`, `to_server`)",
        "failed and lost streams; deprecated",
      ],
      ["agent_open_server_connections", "", "open streams to servers"],
      ["agent_open_endpoint_connections", "", "open connections to endpoints"],
      ["agent_known_server_count", "", "how many servers there are said to be"],
      ["agent_full_receive_channels", "", "slow readers that hold a stream up now"],
      ["agent_stream_packets_total", "`segment` (`from_agent`, `to_agent`), `packet_type`", "packets"],
      ["agent_stream_errors_total", "`segment`, `code`, `packet_type`", "gRPC errors of streams"],
      ["agent_lease_lists_total, agent_lease_watches_total", "`http_response_code`, `reason`", "requests about Leases"],
      ["agent_lease_list_latency_seconds", "`http_response_code`", "histogram: how long lists took"],
      ["agent_reverse_accepted_total", "`target`", "connections to the bind addresses"],
      [
        "agent_reverse_failures_total",
        "`reason` (`no_server`, `denied`, `dial`, `source`)",
        "those that came to nothing",
      ],
      ["agent_reverse_connections", "", "open connections to the control plane's side"],
      ["agent_reconnects_total", "", "attempts that followed a lost stream"],
      ["agent_buffered_bytes", "", "bytes that wait to be sent"],
      ["agent_build_info", "`version`, `runtime`", "always 1"],
    ),
  ],
  "sni-router": [
    endpoints(":9398", ":9399"),
    signals(
      ["SIGHUP", "reads `--config` again; who is connected stays with its backend"],
      [
        "SIGTERM, SIGINT",
        "listens no more, not ready, waits for connections up to `--drain-timeout`; a second one ends at once",
      ],
    ),
    section(
      "Parts of `/readyz?verbose`",
      "part",
      "degraded when",
    )(
      ["`listen`", "an address is not listened on, or the program is shutting down"],
      ["`routes`", "the file of `--config` was wrong when it was read last; the routes before it stay in use"],
    ),
    section("What becomes of a client: `result`", "result", "meaning")(
      ["`routed`", "a backend has it; a name's own route comes first, then the wildcard's, then the default"],
      ["`unknown_name`, `no_name`", "no route, and no default: TLS alert `unrecognized_name`, closed"],
      ["`no_backend`", "none could be reached within `--connect-timeout`: TLS alert `internal_error`, closed"],
      ["`not_tls`, `too_large`", "no ClientHello, or one of more than 16 KiB with its records: closed"],
      ["`timeout`, `gone`", "it was too slow with its hello, or left before it had a backend"],
      ["`overload`", "`--max-connections`: the client that owes its hello longest goes, or else the new one"],
    ),
    ownMetrics(
      ["`sni_router_connections_total`", "`route`, `result`", "clients, by what became of them"],
      ["`sni_router_active_connections`", "", "clients that are connected"],
      ["`sni_router_bytes_total`", "`route`, `direction` (`to_backend`, `to_client`)", "bytes passed on"],
      ["`sni_router_backend_failures_total`", "`backend`", "attempts to reach a backend that failed"],
      ["`sni_router_reloads_total`", "`result` (`ok`, `refused`)", "times that the routes were read again"],
    ),
  ],
};
