import { frontEndId, frontEndText, type WantedTable } from "../plan/index.ts";

/** A Service that claims an address and port, or a NodePort, which it does not get. */
export interface LostClaim {
  /** `namespace/name`. */
  readonly service: string;
  /** The Service that has it, or has the address as cluster IP; absent: no Service can have it. */
  readonly holder?: string;
  /** Whose the address is where no Service can have it: `this node`, `loopback`, … */
  readonly owner?: string;
  /** `203.0.113.9:80/TCP`, or `NodePort 30080/TCP`. */
  readonly frontEnd: string;
}

/** Tells once of each claim that is lost, and again when it is lost anew. */
export class LostClaims {
  /** Of those that the API's objects make now. */
  #told: ReadonlySet<string> = new Set();

  /** How many there were at the last call. */
  get count(): number {
    return this.#told.size;
  }

  /** Those that are new since the last call. */
  take(wanted: Pick<WantedTable, "lostFrontEnds">): LostClaim[] {
    const known = new Set<string>();
    const found: LostClaim[] = [];
    for (const { frontEnd, ...claim } of wanted.lostFrontEnds()) {
      const { service } = claim;
      const id = `${service} ${frontEndId(frontEnd)}`;
      known.add(id);
      if (!this.#told.has(id)) found.push({ ...claim, frontEnd: frontEndText(frontEnd) });
    }
    this.#told = known;
    return found;
  }
}
