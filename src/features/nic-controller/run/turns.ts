/** Claims that are worked on at a time. */
export const CLAIM_WORKERS = 256;
/**
 * Of these, those that ask a provider: the others are for claims whose ports are there, such as those that are active just now, and whose pods do not start
 * before that is written.
 */
const ASKING = 192;
/** Of these, those of one lane: nearly two requests of 50 ports. */
const ASKING_IN_LANE = 96;

/** A turn that is kept for a key. */
interface KeptTurn {
  readonly lane: string;
}

interface Lane {
  /** With the turns that are kept. */
  running: number;
  readonly waiting: Set<string>;
}

/**
 * Which claims may ask a provider now. Requests wait for rates, places and slow servers, and a claim that waited with its worker would keep it from others.
 * Each lane has half of the turns at most, and those that wait are served lane by lane, so none holds up another. It holds as many keys as wait.
 */
export class Turns {
  readonly #onTurn: (key: string) => void;
  readonly #lanes = new Map<string, Lane>();
  readonly #kept = new Map<string, KeptTurn>();
  /** The lane in which a key waits. */
  readonly #waitsIn = new Map<string, string>();
  #running = 0;

  /** `onTurn` is called for a key that has waited, once a turn is kept for it. */
  constructor(onTurn: (key: string) => void) {
    this.#onTurn = onTurn;
  }

  /** Whether a key has a turn now, which ends with {@link end}; otherwise it waits for one. */
  begin(lane: string, key: string): boolean {
    const kept = this.#kept.get(key);
    if (kept?.lane === lane) {
      this.#kept.delete(key);
      return true;
    }
    if (kept !== undefined) this.drop(key, kept);
    if (this.#waitsIn.get(key) !== lane) this.#stopWaiting(key);
    const one = this.#lanes.get(lane) ?? { running: 0, waiting: new Set() };
    this.#lanes.set(lane, one);
    if (this.#running < ASKING && one.running < ASKING_IN_LANE) {
      this.#stopWaiting(key);
      this.#lanes.set(lane, one);
      one.running += 1;
      this.#running += 1;
      return true;
    }
    one.waiting.add(key);
    this.#waitsIn.set(key, lane);
    return false;
  }

  /** A turn has ended. */
  end(lane: string): void {
    const one = this.#lanes.get(lane);
    if (one === undefined) throw new Error(`lane ${lane} has no turn that could end`);
    one.running -= 1;
    this.#running -= 1;
    this.#forgetIdle(lane, one);
    this.#serve();
  }

  /** The turn that is kept for a key. */
  keptFor(key: string): KeptTurn | undefined {
    return this.#kept.get(key);
  }

  /** A kept turn that was not needed goes to the next. One that was used, and a later one, stay. */
  drop(key: string, turn: KeptTurn): void {
    if (this.#kept.get(key) !== turn) return;
    this.#kept.delete(key);
    this.end(turn.lane);
  }

  #serve(): void {
    while (this.#running < ASKING) {
      const found = [...this.#lanes].find(([, { running, waiting }]) => waiting.size > 0 && running < ASKING_IN_LANE);
      if (found === undefined) return;
      const [lane, one] = found;
      const [key = ""] = one.waiting;
      one.waiting.delete(key);
      this.#waitsIn.delete(key);
      one.running += 1;
      this.#running += 1;
      this.#kept.set(key, { lane });
      // The next one is of another lane, if one waits there.
      this.#lanes.delete(lane);
      this.#lanes.set(lane, one);
      this.#onTurn(key);
    }
  }

  #stopWaiting(key: string): void {
    const lane = this.#waitsIn.get(key);
    if (lane === undefined) return;
    this.#waitsIn.delete(key);
    const one = this.#lanes.get(lane);
    one?.waiting.delete(key);
    if (one !== undefined) this.#forgetIdle(lane, one);
  }

  #forgetIdle(lane: string, { running, waiting }: Lane): void {
    if (running === 0 && waiting.size === 0) this.#lanes.delete(lane);
  }
}
