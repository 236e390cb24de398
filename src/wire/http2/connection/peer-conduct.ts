import type { Clock } from "#base/clock";
import { FloodLimiter } from "./flood-limiter.ts";
import type { SpentLimits } from "./options.ts";

/** Answers (PING, SETTINGS, RST_STREAM) that may wait to be taken. */
const MAX_ANSWERS = 1000;
/** Frames without content that a stream may cost: its resets and WINDOW_UPDATEs when it ends. */
const FRAMES_OF_STREAM = 4;
/** Streams that this side has reset and of which frames may still come. Older ones are forgotten. */
const MAX_TOMBSTONES = 1024;

/** The limits of what a peer may cause, and the settings that the peer may not know yet. A method returns false if the peer exceeded a limit; then the connection must end. */
export class PeerConduct {
  readonly #idleFrames: FloodLimiter;
  readonly #resets: FloodLimiter;
  /** Answers since the output was last taken. */
  #answers = 0;
  readonly #tombstones: number[] = [];
  #tombstoneAt = 0;

  constructor(options: {
    readonly clock: Pick<Clock, "monotonic">;
    readonly idleFrameBurst: number;
    readonly idleFramesPerSecond: number;
    readonly resetBurst: number;
    readonly resetsPerSecond: number;
    readonly spent: SpentLimits;
  }) {
    const { clock, spent } = options;
    this.#idleFrames = new FloodLimiter({
      burst: options.idleFrameBurst,
      perSecond: options.idleFramesPerSecond,
      spentMs: spent.framesMs,
      clock,
    });
    const [burst, perSecond] = [options.resetBurst, options.resetsPerSecond];
    this.#resets = new FloodLimiter({ burst, perSecond, spentMs: spent.resetsMs, clock });
  }

  get spent(): SpentLimits {
    return { framesMs: this.#idleFrames.spentMs, resetsMs: this.#resets.spentMs };
  }

  /** Frames that carry nothing. */
  idleFrames(frames: number): boolean {
    return this.#idleFrames.spend(frames);
  }

  /** A stream was opened: its end may cost frames without content. */
  opened(): void {
    this.#idleFrames.earn(FRAMES_OF_STREAM);
  }

  /** Data was sent, which the peer answers with WINDOW_UPDATEs. */
  sent(bytes: number): void {
    this.#idleFrames.earn(2 + (bytes >>> 10));
  }

  /** A stream that the peer has caused to be reset. */
  reset(): boolean {
    return this.#resets.spend();
  }

  /** An answer that the peer has caused. */
  answer(): boolean {
    this.#answers += 1;
    return this.#answers <= MAX_ANSWERS;
  }

  /** The answers were taken to be written. */
  answersTaken(): void {
    this.#answers = 0;
  }

  /** Frames of this stream may still come, because the peer does not know yet that it was reset. */
  remember(stream: number): void {
    this.#tombstones[this.#tombstoneAt] = stream;
    this.#tombstoneAt = (this.#tombstoneAt + 1) % MAX_TOMBSTONES;
  }

  remembers(stream: number): boolean {
    return this.#tombstones.includes(stream);
  }
}
