import { dirname, join } from "node:path";
import { type Estate, healthParts, listeners, section, signals } from "#base/estate";
import type { Settings } from "#base/uplink-model";
import { METRICS_MAP_PATH } from "#features/uplink-proxy";
import { STATUS_REPORT_PATH, uplinksEstate } from "#features/uplink-routing";
import { ownFolders } from "../../shared/estate/index.ts";
import { uplinkFlags } from "./flags.ts";

/** The flags of `uplink-proxy` that change what it owns. */
export interface UplinkPaths {
  readonly parts: "all" | "proxy" | "routing";
  readonly runDir: string;
  readonly secretsDir: string;
  readonly controlSocket: string;
  readonly offSwitch: string;
}

/** Folders at the defaults of the flags. */
const FOLDERS = [
  dirname(uplinkFlags.controlSocket.initial),
  join(uplinkFlags.runDir.initial, dirname(dirname(METRICS_MAP_PATH))),
  uplinkFlags.secretsDir.initial,
];

/** All that `uplink-proxy` owns on its host with these settings. Pure. */
export function uplinkProxyEstate(values: UplinkPaths, settings: Settings): Estate {
  const { controlSocket, runDir, secretsDir, parts } = values;
  return {
    kernel: parts === "proxy" ? [] : uplinksEstate(settings),
    files: [
      ...(controlSocket === "" ? [] : [{ path: controlSocket, what: "its control socket (`--control-socket`)" }]),
      {
        path: join(runDir, METRICS_MAP_PATH),
        what: "counters by interface and target, as EVE's tools read them (`--run-dir`)",
      },
      {
        path: join(runDir, STATUS_REPORT_PATH),
        what: "status of the uplinks, from `--parts=routing` to `--parts=proxy` (`--run-dir`)",
      },
      { path: secretsDir, what: "token and certificate of the listener for pods (`--secrets-dir`), mode 0700" },
    ],
    folders: [...ownFolders("uplink-proxy"), ...FOLDERS],
    sections: SECTIONS,
  };
}

const SECTIONS: Estate["sections"] = [
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
  healthParts(
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
  section(
    "Files of others",
    "path",
    "what",
  )(["`/run/kube/mgmtproxy-disable`", "the transparent mode is off while this file exists (`--off-switch`)"]),
];
