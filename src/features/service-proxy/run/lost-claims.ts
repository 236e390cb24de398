import { frontEndId, frontEndText, type WantedTable } from "../plan/index.ts";

/** A claim of a Service on an address and port, or on a NodePort, that the Service does not get. */
export interface LostClaim {
  /** `namespace/name`. */
  readonly service: string;
  /** The Service that holds the front end, or has its address as cluster IP; absent: no Service can have the address. */
  readonly holder?: string;
  /** Owner of an address that no Service can have: `this node`, `loopback`, … */
  readonly owner?: string;
  /** `203.0.113.9:80/TCP`, or `NodePort 30080/TCP`. */
  readonly frontEnd: string;
}

/** Returns each lost claim once, and again after it was won and lost once more. */
export class LostClaims {
  /** Ids of the claims that are lost now. */
  #known: ReadonlySet<string> = new Set();

  /** Number of lost claims at the last {@link LostClaims.take}. */
  get count(): number {
    return this.#known.size;
  }

  /** Claims that were lost since the last call. */
  take(wanted: Pick<WantedTable, "lostFrontEnds">): LostClaim[] {
    const known = new Set<string>();
    const found: LostClaim[] = [];
    for (const { frontEnd, ...claim } of wanted.lostFrontEnds()) {
      const { service } = claim;
      const id = `${service} ${frontEndId(frontEnd)}`;
      known.add(id);
      if (!this.#known.has(id)) found.push({ ...claim, frontEnd: frontEndText(frontEnd) });
    }
    this.#known = known;
    return found;
  }
}
