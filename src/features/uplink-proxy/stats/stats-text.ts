import type { MetricsDocument, UrlCounters } from "./metrics-map.ts";

/** The output of `uplink-proxy stats`, in the shape of EVE's `edgeview url` (docs/spec/uplink-proxy.md#8). */
export function statsText(document: MetricsDocument): string {
  const lines = [" - mgmtproxy stats"];
  const total = { received: 0, sent: 0, messages: 0, timeMs: 0 };
  for (const [ifName, metrics] of Object.entries(document)) {
    lines.push("", ` interface: ${ifName}`);
    lines.push(` Success: ${metrics.SuccessCount}  Last Success: ${metrics.LastSuccess}`);
    if (metrics.FailureCount > 0) {
      lines.push(` Failure: ${metrics.FailureCount}  Last Failure: ${metrics.LastFailure}`);
    }
    for (const [target, counters] of Object.entries(metrics.URLCounters)) {
      lines.push(`  ${target}`, `   ${targetLine(counters)}`);
      total.received += counters.RecvByteCount;
      total.sent += counters.SentByteCount;
      total.messages += counters.SentMsgCount;
      total.timeMs += counters.TotalTimeSpent;
    }
  }
  lines.push("", ` Total Recv (KBytes): ${total.received / 1000}, Sent ${total.sent}, SentMsg: ${total.messages}`);
  lines.push(` Total Time(sec): ${total.timeMs / 1000}`);
  return `${lines.join("\n")}\n`;
}

function targetLine({
  RecvByteCount,
  SentByteCount,
  SentMsgCount,
  SessionResume,
  TotalTimeSpent,
}: UrlCounters): string {
  const sent = `Sent ${SentByteCount}, SentMsg: ${SentMsgCount}, TLS resume: ${SessionResume}`;
  return `Recv (KBytes): ${RecvByteCount / 1000}, ${sent}, Total Time(sec): ${TotalTimeSpent / 1000}`;
}
