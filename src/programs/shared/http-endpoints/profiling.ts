import type { Session } from "node:inspector/promises";
import { sleep } from "#base/async";
import type { EndpointAnswer, EndpointRequest, HttpRoutes } from "#wire/http-endpoint";

const DEFAULT_SECONDS = 30;
const MAX_SECONDS = 300;
/** Mean number of bytes between two allocations that are sampled, as in Go's heap profile. */
const SAMPLING_BYTES = 512 * 1024;

const INDEX = `<!DOCTYPE html><html><head><title>/debug/pprof/</title></head><body>
<p>Profiles of this process, for Chrome DevTools and the like: names of functions, counts and sizes, no contents.</p>
<ul>
<li><a href="profile?seconds=${DEFAULT_SECONDS}">profile</a>: CPU, JSON (.cpuprofile); <code>?seconds=</code> 1 to ${MAX_SECONDS}</li>
<li><a href="heap">heap</a>: who has allocated what is alive, sampled since the start (.heapprofile)</li>
</ul></body></html>
`;

/** `/debug/pprof/`: Node.js's CPU profile and sampled heap profile (docs/spec/tunnel.md#13). One CPU profile is taken at a time. Allocations are sampled from now on. */
export function profilingRoutes(): HttpRoutes {
  let isBusy = false;
  const sampling = startSampling();
  // A failure is told to whoever asks for the profile.
  sampling.catch(() => undefined);
  return {
    "/debug/pprof/profile": async (request) => {
      if (isBusy) return { status: 503, body: "another profile is being recorded; try again later\n" };
      isBusy = true;
      try {
        return await cpuProfile(request);
      } finally {
        isBusy = false;
      }
    },
    "/debug/pprof/heap": async () => {
      const { profile } = await (await sampling).post("HeapProfiler.getSamplingProfile");
      return attachment("heap.heapprofile", JSON.stringify(profile));
    },
    "/debug/pprof/": ({ path }) =>
      path === "/debug/pprof/"
        ? { type: "text/html; charset=utf-8", body: INDEX }
        : { status: 404, body: "Unknown profile; the profiles are profile and heap\n" },
  };
}

async function openSession(): Promise<Session> {
  const { Session: Inspector } = await import("node:inspector/promises");
  const session = new Inspector();
  session.connect();
  return session;
}

async function startSampling(): Promise<Session> {
  const session = await openSession();
  await session.post("HeapProfiler.enable");
  await session.post("HeapProfiler.startSampling", { samplingInterval: SAMPLING_BYTES });
  return session;
}

async function cpuProfile({ query, signal }: EndpointRequest): Promise<EndpointAnswer> {
  const seconds = Number(query.get("seconds") ?? DEFAULT_SECONDS);
  if (!(seconds > 0 && seconds <= MAX_SECONDS)) {
    return { status: 400, body: `seconds must be above 0 and at most ${MAX_SECONDS}\n` };
  }
  const session = await openSession();
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

export function attachment(name: string, body: EndpointAnswer["body"]): EndpointAnswer {
  return { type: "application/json", headers: { "content-disposition": `attachment; filename="${name}"` }, body };
}
