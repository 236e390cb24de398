/** The building blocks of the tables of `docs/reference`: what the flags of a program do not say. */

/** A table of constants: what the flags do not say. */
export interface Section {
  readonly title: string;
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export const ownMetrics = (...rows: readonly (readonly string[])[]): Section => ({
  title: "Metrics",
  head: ["name", "labels", "meaning"],
  rows: [
    ...rows,
    ["`process_*`, `nodejs_*`", "", "of the process: CPU, memory, descriptors, event loop, garbage collection"],
  ],
});

/** Of a program that talks to the API server. */
export const metrics = (...rows: readonly (readonly string[])[]): Section =>
  ownMetrics(...rows, ["`rest_client_requests_total`", "`code`, `method`, `host`", "requests to the API server"]);

export const endpoints = (metricsPort: string, healthPort: string): Section => ({
  title: "Endpoints",
  head: ["where", "what"],
  rows: [
    [`\`${metricsPort}/metrics\``, "metrics in Prometheus' text format"],
    [`\`${healthPort}/healthz\``, "200 while the process answers"],
    [`\`${healthPort}/readyz\``, "200 when every part is ready, else 503 and the parts; `?verbose` lists all"],
  ],
});

export const kernel = (...rows: readonly (readonly string[])[]): Section => ({
  title: "In the kernel",
  head: ["mark", "what"],
  rows,
});

export const files = (...rows: readonly (readonly string[])[]): Section => ({
  title: "Files",
  head: ["path", "what"],
  rows,
});

export const CODES: Section = {
  title: "Exit codes",
  head: ["code", "when"],
  rows: [
    ["0", "it was told to end, and did"],
    ["1", "a flag is wrong, or an address cannot be had; the server: also at a second signal"],
  ],
};

/** Metrics of the tunnel, all under upstream's prefix; several names share a row. */
export const tunnelMetrics = (...rows: readonly (readonly string[])[]): Section =>
  metrics(
    ...rows.map(([names = "", ...rest]) => [
      names
        .split(", ")
        .map((name) => `\`konnectivity_network_proxy_${name}\``)
        .join(", "),
      ...rest,
    ]),
  );
