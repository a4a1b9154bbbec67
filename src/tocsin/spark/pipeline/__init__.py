"""The Spark application that `tocsin up` runs beside its node: detection, archive, statistics; see `application`."""
