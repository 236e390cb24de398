import { exitCodes, files, kernel, listeners, type Section, section, signals } from "./section.ts";

/** Notes by program. A number that a flag sets is the flag's default. */
export const uplink: Readonly<Record<string, readonly Section[]>> = {
  "uplink-proxy": [
    listeners(
      [
        "`127.0.0.1:5443`",
        "the proxy for processes of the host: `CONNECT host:port`; plain `http://` too with `plainHttp`",
      ],
      ["`127.0.0.1:5443/healthz`", "the state as one JSON object: uplinks, counters, penalties, `configError`"],
      [
        "`127.0.0.1:5443/readyz`",
        "200 when every part is ready, else 503 and the parts; `?verbose` lists all. Not with `--parts=routing`, which has no listener",
      ],
      ["`127.0.0.1:5443/metrics`", "Prometheus' text format, with `metrics: true` in the settings; else 405"],
      ["`169.254.100.1:5443`", "the proxy for pods, with token and TLS; no `/healthz`"],
      [
        "`/run/uplink-proxy/control.sock`",
        "`GET /v1/uplinks`, `PUT /v1/uplinks/NAME/status` (`--control-socket`), mode 0600",
      ],
    ),
    signals(
      ["SIGHUP", "reads the settings again; tunnels stay"],
      [
        "SIGTERM, SIGINT",
        "503 to new requests, tunnels continue for `limits.drainMs`; a second signal ends the process at once",
      ],
    ),
    section("Parts of `/readyz?verbose`", "part", "degraded when")(
      ["`uplinks`", "the kernel cannot be read or programmed, or was not read yet"],
      [
        "`control-socket`",
        "agents cannot reach the control socket: its file was removed and cannot be made again, or another process listens there; tried again twice a second",
      ],
      ["`configuration`", "the newest settings, or a part of them, are not in force"],
      ["`listeners`", "a listener for the host is not bound; the listener for pods waits for its bridge"],
      ["`ways`", "no uplink within `maxCost` has an address and works; the reasons are listed"],
      ["`transparent`", "connections cannot be redirected"],
    ),
    section("Reasons of failed requests: `X-Uplink-Reason`", "reason", "meaning")(
      ["`not-ready`", "502: the settings, or EVE's two documents, were not read yet"],
      ["`no-uplink`", "502: no management uplink"],
      ["`cost-limit`", "502: every uplink is above `maxCost`, which is 0 by default"],
      ["`dial-failed`, `timeout`, `dns`", "502: every attempt failed; the body lists each attempt"],
      [
        "`bad-answer`",
        "502, only with `plainHttp`: the origin's answer was malformed, or ended before its head was complete",
      ],
      ["`method`", "405: neither CONNECT nor a page of the proxy; if the request has `http://`, `plainHttp` is off"],
      ["`bad-target`", "400: not `host:port`"],
      ["`overload`", "503: too many tunnels, attempts or descriptors"],
    ),
    kernel(
      [
        "tables 500 + interface index, or 1500 and more if that table is in use; routes with protocol 157",
        "routes of an uplink; the last route is `unreachable`",
      ],
      ["rules 15000, protocol 157", "`from` an address of an uplink, to its table"],
      ["rules 13000, protocol 157", "`to` pods and Services, to the main table (or 400)"],
      ["nft table `inet uplink_guard`", "closes the listeners' ports on uplinks"],
      ["nft table `inet uplink_proxy`, rule 11500, mark 0x55, table 499", "transparent mode"],
      ["mark 0x155", "own sockets in transparent mode"],
      ["`169.254.100.1/32` on the pods' bridge", "address of the listener for pods"],
    ),
    files(
      [
        "`/run/mgmtproxy/MetricsMap/global.json`",
        "counters by interface and target, as EVE's tools read them (`--run-dir`)",
      ],
      [
        "`/run/uplink-proxy/reach.json`",
        "status of the uplinks, from `--parts=routing` to `--parts=proxy` (`--run-dir`)",
      ],
      ["`/var/lib/uplink-proxy/`", "token and certificate of the listener for pods (`--secrets-dir`), mode 0700"],
      ["`/run/kube/mgmtproxy-disable`", "the transparent mode is off while this file exists (`--off-switch`)"],
    ),
  ],
  "mgmtproxy-env": [
    exitCodes(
      ["0", "done; `enabled`: programs use the proxy"],
      ["1", "failed; `enabled`: the off-switch is on"],
      ["2", "a flag is wrong"],
      ["the command's", "`run`: its exit status, 128 and the signal's number after a signal"],
    ),
    files(
      [
        "`/run/kube/mgmtproxy-disable`",
        "the off-switch (`--off-switch`): any kind of file; it applies to programs that are started later",
      ],
      ["`/run/mgmtproxy-containerd-env`", "the variables of the runtime at its start (`--sentinel`), mode 0644"],
    ),
  ],
};
