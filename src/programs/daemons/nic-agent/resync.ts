/** The interval at which reports and ports are compared with what is there, milliseconds. */
export const RESYNC_MS = 60_000;
