/** The input from which every format of package is made. */
export interface PackageJob {
  /** The file to write. */
  readonly output: string;
  /** An empty folder, which the caller removes. */
  readonly work: string;
  readonly version: string;
  /** The level of gzip, from 0 to 9. */
  readonly level: number;
  readonly say: (text: string) => void;
}
