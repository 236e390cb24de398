import { frontEndId, frontEndText, type WantedTable } from "../plan/index.ts";

/** A Service that claims an address and port, or a NodePort, which an older one has. */
export interface LostClaim {
  /** `namespace/name`. */
  readonly service: string;
  /** The one that has it. */
  readonly holder: string;
  /** `203.0.113.9:80/TCP`, or `NodePort 30080/TCP`. */
  readonly frontEnd: string;
}

/** Tells once of each claim that is lost, and again when it is lost anew. */
export class LostClaims {
  /** Of those that the API's objects make now. */
  #told: ReadonlySet<string> = new Set();

  /** Those that are new since the last call. */
  take(wanted: Pick<WantedTable, "losers">): LostClaim[] {
    const known = new Set<string>();
    const found: LostClaim[] = [];
    for (const { service, holder, frontEnd } of wanted.losers()) {
      const id = `${service} ${frontEndId(frontEnd)}`;
      known.add(id);
      if (!this.#told.has(id)) found.push({ service, holder, frontEnd: frontEndText(frontEnd) });
    }
    this.#told = known;
    return found;
  }
}
