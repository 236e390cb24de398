import { getHeapSnapshot } from "node:v8";
import { sleep } from "#base/async";
import type { HttpReply, HttpRequest, HttpRoutes } from "./http.ts";

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 300;

const INDEX = `<!DOCTYPE html><html><head><title>/debug/pprof/</title></head><body>
<p>Profiles of this process, for Chrome DevTools and the like.</p>
<ul>
<li><a href="profile?seconds=${DEFAULT_SECONDS}">profile</a>: CPU, JSON (.cpuprofile); <code>?seconds=</code> 1 to ${MAX_SECONDS}</li>
<li><a href="heap">heap</a>: a snapshot of the heap (.heapsnapshot); the process is stopped meanwhile</li>
</ul></body></html>
`;

/** `/debug/pprof/`: Node.js's CPU profile and heap snapshot (docs/spec/tunnel.md#13). One profile is taken at a time. */
export function profilingRoutes(): HttpRoutes {
  let busy = false;
  const alone =
    (take: (request: HttpRequest) => Promise<HttpReply> | HttpReply) =>
    async (request: HttpRequest): Promise<HttpReply> => {
      if (busy) return { status: 503, body: "another profile is being recorded; try again later\n" };
      busy = true;
      try {
        return await take(request);
      } finally {
        busy = false;
      }
    };
  return {
    "/debug/pprof/profile": alone(cpuProfile),
    "/debug/pprof/heap": alone(heapSnapshot),
    "/debug/pprof/": ({ path }) =>
      path === "/debug/pprof/"
        ? { type: "text/html; charset=utf-8", body: INDEX }
        : { status: 404, body: "Unknown profile; the profiles are profile and heap\n" },
  };
}

async function cpuProfile({ query, signal }: HttpRequest): Promise<HttpReply> {
  const seconds = Number(query.get("seconds") ?? DEFAULT_SECONDS);
  if (!(seconds > 0 && seconds <= MAX_SECONDS)) {
    return { status: 400, body: `seconds must be above 0 and at most ${MAX_SECONDS}\n` };
  }
  const { Session } = await import("node:inspector/promises");
  const session = new Session();
  session.connect();
  try {
    await session.post("Profiler.enable");
    await session.post("Profiler.start");
    // A client that disconnects ends its profile.
    await sleep(seconds * 1000, { signal }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
    const { profile } = await session.post("Profiler.stop");
    return attachment("cpu.cpuprofile", JSON.stringify(profile));
  } finally {
    session.disconnect();
  }
}

function heapSnapshot(): HttpReply {
  return attachment("heap.heapsnapshot", getHeapSnapshot());
}

function attachment(name: string, body: HttpReply["body"]): HttpReply {
  return { type: "application/json", headers: { "content-disposition": `attachment; filename="${name}"` }, body };
}
