/** Tries of one kind, and their failures, one line each. */
export interface TunnelTries {
  readonly tried: number;
  readonly answered: number;
  readonly failures: readonly string[];
}

/** The member `tunnel` of the report, with `isthmus lab --tunnel`. */
export interface TunnelReport {
  readonly agents: { readonly connected: number; readonly wanted: number };
  /** Connections that bypass the tunnel, in both directions: all must fail. */
  readonly direct: { readonly tried: number; readonly refused: number; readonly open: readonly string[] };
  /** Tries from nodes, and from a pod of each, to the API server by every bind address. `connections`: since the agents started. */
  readonly reverse: TunnelTries & { readonly connections: number };
  /** Programs of the nodes, kubelets among them, that have a connection to the bind address. */
  readonly programs: {
    readonly wanted: number;
    readonly connected: number;
    /** `PROGRAM of NODE` for each program without such a connection. */
    readonly missing: readonly string[];
  };
  /** Tries from the control plane to each pod's addresses and to each node's ports. `connections`: since the server started. */
  readonly forward: {
    readonly pods: TunnelTries;
    readonly nodePorts: TunnelTries;
    readonly connections: number;
  };
  /** Duration of these tries. */
  readonly seconds: number;
}

/** Returns true if every try through the tunnel was answered, and none without it. */
export function tunnelWorks(report: TunnelReport): boolean {
  const { agents, direct, reverse, programs, forward } = report;
  return (
    agents.connected === agents.wanted &&
    isShut(direct) &&
    allAnswered(reverse) &&
    programs.connected === programs.wanted &&
    allAnswered(forward.nodePorts) &&
    forward.pods.answered === forward.pods.tried
  );
}

/** The part of the report as text for users. `cut` shortens long lists. */
export function tunnelLines(
  report: TunnelReport,
  {
    mark,
    cut,
  }: { readonly mark: (good: boolean) => string; readonly cut: (lines: readonly string[]) => readonly string[] },
): string[] {
  const { agents, direct, reverse, programs, forward } = report;
  const { pods, nodePorts } = forward;
  const indented = (lines: readonly string[]): string[] => cut(lines).map((line) => `       ${line}`);
  return [
    `${mark(agents.connected === agents.wanted)} tunnel: ${agents.connected} of ${agents.wanted} agents connected`,
    `${mark(isShut(direct))} ${direct.refused} of ${direct.tried} connections that bypass the tunnel refused, both ways`,
    ...indented(direct.open),
    `${mark(allAnswered(reverse))} nodes and pods to the API server: ${reverse.answered} of ${reverse.tried} tries answered; ${reverse.connections} connections since the start`,
    ...indented(reverse.failures),
    `${mark(programs.connected === programs.wanted)} ${programs.connected} of ${programs.wanted} programs of nodes talk to it through the tunnel`,
    ...indented(programs.missing),
    `${mark(pods.answered === pods.tried && allAnswered(nodePorts))} control plane to nodes: ${pods.answered} of ${pods.tried} pods' addresses and ${nodePorts.answered} of ${nodePorts.tried} ports of nodes answered; ${forward.connections} connections since the start`,
    ...indented([...pods.failures, ...nodePorts.failures]),
  ];
}

function allAnswered({ tried, answered }: TunnelTries): boolean {
  return tried > 0 && answered === tried;
}

function isShut({ tried, refused }: TunnelReport["direct"]): boolean {
  return tried > 0 && refused === tried;
}
