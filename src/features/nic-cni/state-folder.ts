import { join } from "node:path";

/** The folders of a state folder that have the last known claims and the journal, and the lock for which a second agent waits. Pure. */
export function nicAgentState(stateDir: string): {
  readonly claims: string;
  readonly journal: string;
  readonly lock: string;
} {
  return { claims: join(stateDir, "claims"), journal: join(stateDir, "cni"), lock: join(stateDir, "nic-agent.lock") };
}
