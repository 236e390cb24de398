/** The numbers of turns. */
export interface TurnLimits {
  /** Turns at a time, of all lanes. */
  readonly most: number;
  /** Turns of one lane at a time. */
  readonly mostInLane: number;
}

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
 * The queue of keys whose pass waits for a scarce thing, such as a slow server. A pass that waited with its worker would keep the worker from other keys; here
 * it ends, and the key is enqueued again when its turn comes. A lane never has more than its share of the turns, and waiting keys are served lane
 * by lane, so no lane holds up another. The queue holds as many keys as wait.
 *
 * ```ts
 * const turns = new Turns((key) => controller.enqueue(key), { most: 192, mostInLane: 96 });
 * await turns.pass(key, async () => {
 *   const hadTurn = await turns.within("create/project-1", key, () => createPorts());
 *   if (!hadTurn) return; // the key is enqueued when its turn comes
 * });
 * ```
 */
export class Turns {
  readonly #onTurn: (key: string) => void;
  readonly #limits: TurnLimits;
  readonly #lanes = new Map<string, Lane>();
  readonly #kept = new Map<string, KeptTurn>();
  /** The lane in which a key waits. */
  readonly #waitsIn = new Map<string, string>();
  #running = 0;

  /** `onTurn` is called for a key that has waited, once a turn is kept for it. */
  constructor(onTurn: (key: string) => void, limits: TurnLimits) {
    this.#onTurn = onTurn;
    this.#limits = limits;
  }

  /** Does the pass of a key. A turn that was kept for the key, and that the pass does not use, goes to the next key. Rejects with what `work` rejects with. */
  async pass<T>(key: string, work: () => Promise<T>): Promise<T> {
    const turn = this.keptFor(key);
    try {
      return await work();
    } finally {
      if (turn !== undefined) this.drop(key, turn);
    }
  }

  /** Does work in a turn of a lane. Resolves to false if no turn is free: then the key waits for one. Rejects with what `work` rejects with. */
  async within(lane: string, key: string, work: () => Promise<void>): Promise<boolean> {
    if (!this.begin(lane, key)) return false;
    try {
      await work();
      return true;
    } finally {
      this.end(lane);
    }
  }

  /** Returns true if a key has a turn now, which ends with {@link end}; otherwise the key waits for one. */
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
    if (this.#running < this.#limits.most && this.#hasRoom(one)) {
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

  /** Ends a turn of a lane. Throws if the lane has none. */
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

  /** A kept turn that was not needed goes to the next key. One that was used, and a later one, stay. */
  drop(key: string, turn: KeptTurn): void {
    if (this.#kept.get(key) !== turn) return;
    this.#kept.delete(key);
    this.end(turn.lane);
  }

  #hasRoom({ running }: Lane): boolean {
    return running < this.#limits.mostInLane;
  }

  #serve(): void {
    while (this.#running < this.#limits.most) {
      const found = [...this.#lanes].find(([, lane]) => lane.waiting.size > 0 && this.#hasRoom(lane));
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
