import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type AbortOptions, poll } from "#base/async";
import { systemClock } from "#base/clock";
import { DATABASE, databaseUrl } from "./configs.ts";
import { NeutronBedError } from "./errors.ts";
import type { Processes, ProgramSpec } from "./processes.ts";
import { PROGRAMS } from "./programs.ts";

/** The folder in which the database with Neutron's tables is kept for later beds. */
const CACHE = "/var/cache/isthmus";
/** Time of one step, in milliseconds. */
const STEP_MS = 120_000;
/** Nothing in it must outlive the machine, so nothing is flushed. */
const FAST = [
  "--innodb-log-file-size=16M",
  "--innodb-flush-log-at-trx-commit=0",
  "--innodb-flush-method=nosync",
  "--innodb-doublewrite=0",
  "--innodb-buffer-pool-size=64M",
] as const;
/** Tables from Neutron's models; its migrations take twice as long. */
const MAKE_TABLES =
  "import sqlalchemy as sa,sys; from neutron.db.migration.models import head; head.get_metadata().create_all(sa.create_engine(sys.argv[1]))";

/** The place of a new database: among the processes and files of a bed, with which it ends. */
interface Workshop {
  readonly processes: Processes;
  readonly netns: string;
  /** A folder that is made, and removed. */
  readonly folder: string;
}

/** Makes a data folder with Neutron's empty tables. The first time on a machine this takes ten seconds, later a copy. */
export async function makeDatabase(folder: string, at: Workshop, options: AbortOptions): Promise<void> {
  const kept = join(CACHE, `neutron-db-${versions()}`);
  if (!existsSync(kept)) await keepNew(kept, at, options);
  cpSync(kept, folder, { recursive: true });
}

/** The program that serves a data folder. */
export function databaseProgram(folder: string, netns?: string): ProgramSpec {
  const network = netns === undefined ? ["--skip-networking"] : ["--bind-address=127.0.0.1", `--port=${DATABASE.port}`];
  return {
    name: "mariadb",
    argv: [
      PROGRAMS.database,
      "--no-defaults",
      "--user=root",
      `--datadir=${folder}`,
      `--socket=${folder}.sock`,
      `--init-file=${folder}.sql`,
      "--skip-name-resolve",
      "--performance-schema=0",
      "--max-connections=500",
      ...FAST,
      ...network,
    ],
    ...(netns === undefined ? {} : { netns }),
  };
}

/** Writes what the database does at each of its starts: nothing after the first. */
export function writeInit(folder: string): void {
  const { name, user, password } = DATABASE;
  const account = `${user}@'%'`;
  writeFileSync(
    `${folder}.sql`,
    `CREATE DATABASE IF NOT EXISTS ${name} CHARACTER SET utf8;
CREATE USER IF NOT EXISTS ${account} IDENTIFIED BY '${password}';
GRANT ALL ON ${name}.* TO ${account};
`,
  );
}

async function keepNew(
  kept: string,
  { processes, netns, folder: work }: Workshop,
  { signal }: AbortOptions,
): Promise<void> {
  mkdirSync(work);
  try {
    const folder = join(work, "mysql");
    const install = [PROGRAMS.makeDatabase, "--no-defaults", "--user=root", `--datadir=${folder}`, ...FAST];
    await processes.run(
      {
        name: "install",
        netns,
        argv: [...install, "--auth-root-authentication-method=normal", "--skip-test-db"],
      },
      { signal },
    );
    writeInit(folder);
    const server = processes.start({ ...databaseProgram(folder), name: "new-database", netns });
    const isUp = (): boolean => server.isEnded() || existsSync(`${folder}.sock`);
    await poll(isUp, { until: (is) => is, everyMs: 20, deadlineMs: STEP_MS, clock: systemClock, ...only(signal) });
    if (server.isEnded()) throw new NeutronBedError("start-failed", `MariaDB ended: ${server.lastWords()}`);
    const url = databaseUrl("localhost", `?unix_socket=${folder}.sock`);
    await processes.run({ name: "tables", netns, argv: [PROGRAMS.python, "-c", MAKE_TABLES, url] }, { signal });
    const config = join(work, "stamp.conf");
    writeFileSync(config, `[DEFAULT]\ncore_plugin = ml2\n[database]\nconnection = ${url}\n`);
    const stamp = [PROGRAMS.python, PROGRAMS.dbManage, "--config-file", config, "stamp", "heads"];
    await processes.run({ name: "stamp", netns, argv: stamp }, { signal });
    // The files are whole only after an orderly end.
    await processes.end(server);
    mkdirSync(CACHE, { recursive: true });
    const part = mkdtempSync(`${kept}.`);
    cpSync(folder, join(part, "mysql"), { recursive: true });
    try {
      renameSync(join(part, "mysql"), kept);
    } catch (error) {
      // Another bed was faster.
      if (!["ENOTEMPTY", "EEXIST"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    } finally {
      rmSync(part, { recursive: true, force: true });
    }
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

/** The versions whose tables and files these are. */
function versions(): string {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg-query replaces it.
  const query = ["-W", "-f", "${Version}\n", "python3-neutron", "mariadb-server-core"];
  return execFileSync("dpkg-query", query, { encoding: "utf8" })
    .trim()
    .replaceAll(/[^\n0-9A-Za-z.+-]/g, "_")
    .replaceAll("\n", "-");
}

function only(signal: AbortSignal | undefined): AbortOptions {
  return signal === undefined ? {} : { signal };
}
