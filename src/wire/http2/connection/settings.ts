import { Http2Code, MAX_MAX_FRAME_BYTES, MAX_WINDOW_BYTES, MIN_MAX_FRAME_BYTES, Setting, uint32At } from "./frames.ts";

/** Settings of a peer that this side obeys, RFC 9113 section 6.5.2. Absent: not in the frame. */
export interface PeerSettings {
  headerTableSize?: number;
  maxConcurrentStreams?: number;
  initialWindowSize?: number;
  maxFrameSize?: number;
}

/** The reason why a SETTINGS frame is an error of the connection. */
export interface SettingsFault {
  readonly code: number;
  readonly text: string;
}

/**
 * The settings of a frame, the last value of each. `fromServer`: the sender is a server, which may not switch push on. Unknown settings are
 * left out, and so is SETTINGS_MAX_HEADER_LIST_SIZE, which is advice.
 */
export function readSettings(payload: Uint8Array, fromServer: boolean): PeerSettings | SettingsFault {
  if (payload.length % 6 !== 0) {
    return { code: Http2Code.frameSizeError, text: `a SETTINGS frame has ${payload.length} bytes` };
  }
  const settings: PeerSettings = {};
  for (let at = 0; at < payload.length; at += 6) {
    const id = ((payload[at] as number) << 8) | (payload[at + 1] as number);
    const value = uint32At(payload, at + 2);
    switch (id) {
      case Setting.headerTableSize:
        settings.headerTableSize = value;
        break;
      case Setting.enablePush:
        if (value > 1 || (fromServer && value === 1)) return invalid("ENABLE_PUSH", value);
        break;
      case Setting.maxConcurrentStreams:
        settings.maxConcurrentStreams = value;
        break;
      case Setting.initialWindowSize:
        if (value > MAX_WINDOW_BYTES)
          return { ...invalid("INITIAL_WINDOW_SIZE", value), code: Http2Code.flowControlError };
        settings.initialWindowSize = value;
        break;
      case Setting.maxFrameSize:
        if (value < MIN_MAX_FRAME_BYTES || value > MAX_MAX_FRAME_BYTES) return invalid("MAX_FRAME_SIZE", value);
        settings.maxFrameSize = value;
        break;
      default:
        break;
    }
  }
  return settings;
}

function invalid(name: string, value: number): SettingsFault {
  return { code: Http2Code.protocolError, text: `SETTINGS_${name} is ${value}` };
}
