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
  ["0", "it has ended after a signal"],
  ["1", "a flag is wrong, or listening has failed; the server: also after a second signal"],
);

/** Metrics of the tunnel, with Konnectivity's prefix; several names may share a row. */
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
        "with `--enable-lease-controller`: 30 s, renewed every 15 s, deleted at the end; expired ones with the labels are deleted",
      ],
      ["TokenReview", "created for agents' tokens; an accepted token is cached for 60 s, a refused one for 10 s"],
    ),
    tunnelMetrics(
      ["server_dial_duration_seconds", "", "histogram: time from a dial to the agent's answer"],
      ["server_frontend_write_duration_seconds", "", "histogram: time of a write to a frontend"],
      ["server_connection_duration_seconds", "", "histogram: duration of connections"],
      ["server_grpc_connections", "`service_method` (`Proxy`, `Connect`)", "open gRPC streams"],
      ["server_http_connections", "", "open HTTP CONNECT connections"],
      ["server_pending_backend_dials", "", "dials without an answer"],
      ["server_established_connections", "", "open connections"],
      [
        "server_ready_backends",
        "`proxy_strategy`",
        "agents that each strategy can use; for `destHost` the hosts that they identify",
      ],
      ["server_ready_backend_connections", "", "streams of agents; deprecated"],
      ["server_full_receive_channels", "`service_method`", "slow consumers that stop a stream now"],
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
        "histograms: time of these requests",
      ],
      [
        "server_reverse_dials_total",
        "`result` (`ok`, `denied`, `limited`, `dial_error`, `disabled`, `stopping`)",
        "dials by agents",
      ],
      ["server_reverse_connections", "", "open connections from agents to this side"],
      ["server_slow_consumer_closed_total", "", "connections closed because their reader was too slow"],
      ["server_buffered_bytes", "", "bytes that all connections hold in queues"],
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
      ["`:8093/healthz`", "200 `ok`, independent of servers"],
      ["`:8093/readyz`, `/ready`", "200 `ok`, or 503 and the checks; `?verbose` lists all of them"],
      ["`:8093/metrics`", "metrics in Prometheus' text format; `127.0.0.1:8094/metrics` redirects there"],
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
      ["`bind-interface`", "with `--target`: the bind addresses are not on this node, and cannot be added"],
      ["`leases`", "with `--count-server-leases`: the Leases were never read; later failures are only logged"],
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
      ["agent_dial_duration_seconds", "", "histogram: time of connecting to an endpoint"],
      ["agent_endpoint_dial_failure_total", "`reason` (`timeout`, `unknown`)", "failed dials"],
      [
        "agent_server_connection_failure_count",
        "`direction` (`from_server`, `to_server`)",
        "failed and lost streams; deprecated",
      ],
      ["agent_open_server_connections", "", "open streams to servers"],
      ["agent_open_endpoint_connections", "", "open connections to endpoints"],
      ["agent_known_server_count", "", "the known number of servers"],
      ["agent_full_receive_channels", "", "slow consumers that stop a stream now"],
      ["agent_stream_packets_total", "`segment` (`from_agent`, `to_agent`), `packet_type`", "packets"],
      ["agent_stream_errors_total", "`segment`, `code`, `packet_type`", "gRPC errors of streams"],
      ["agent_lease_lists_total, agent_lease_watches_total", "`http_response_code`, `reason`", "requests about Leases"],
      ["agent_lease_list_latency_seconds", "`http_response_code`", "histogram: time of a list"],
      ["agent_reverse_accepted_total", "`target`", "connections to the bind addresses"],
      [
        "agent_reverse_failures_total",
        "`reason` (`no_server`, `denied`, `dial`, `source`)",
        "failed connections to the bind addresses",
      ],
      ["agent_reverse_connections", "", "open connections to the control plane's side"],
      ["agent_reconnects_total", "", "attempts to connect after a lost stream"],
      ["agent_buffered_bytes", "", "bytes that all connections hold in queues"],
      ["agent_build_info", "`version`, `runtime`", "always 1"],
    ),
  ],
  "sni-router": [
    endpoints(":9398", ":9399"),
    signals(
      ["SIGHUP", "reads `--config` again; connected clients stay with their backends"],
      [
        "SIGTERM, SIGINT",
        "stops listening, is not ready, waits for connections up to `--drain-timeout`; a second one ends it at once",
      ],
    ),
    section(
      "Parts of `/readyz?verbose`",
      "part",
      "degraded when",
    )(
      ["`listen`", "an address is not listened on, or the program is shutting down"],
      ["`routes`", "the file of `--config` was wrong when it was read last; the old routes stay in use"],
    ),
    section("Outcome of a client: `result`", "result", "meaning")(
      [
        "`routed`",
        "it is connected to a backend; a name's own route comes first, then the wildcard's, then the default",
      ],
      ["`unknown_name`, `no_name`", "no route, and no default: TLS alert `unrecognized_name`, closed"],
      ["`no_backend`", "no backend could be reached within `--connect-timeout`: TLS alert `internal_error`, closed"],
      ["`not_tls`, `too_large`", "no ClientHello, or one of more than 16 KiB with its records: closed"],
      ["`timeout`, `gone`", "its hello came too late, or it left before it had a backend"],
      [
        "`overload`",
        "`--max-connections`: the client that has waited longest without a hello is closed, else the new one",
      ],
    ),
    ownMetrics(
      ["`sni_router_connections_total`", "`route`, `result`", "clients, by outcome"],
      ["`sni_router_active_connections`", "", "connected clients"],
      ["`sni_router_bytes_total`", "`route`, `direction` (`to_backend`, `to_client`)", "bytes passed on"],
      ["`sni_router_backend_failures_total`", "`backend`", "failed attempts to connect to a backend"],
      ["`sni_router_reloads_total`", "`result` (`ok`, `refused`)", "reloads of the routes"],
    ),
  ],
};
