# Contract: config/datasets.yaml names the corpora. Makes {ROOT}/{scale}/data/{dataset}/: the
# memory-mapped shards, a copy of the tokenizer and the manifest.json that describes them (written last), in
# {ROOT}/{scale}/tokenizers/{dataset}/ the tokenizer (a dataset with a base takes over the base's), in
# {ROOT}/{scale}/frequent_ngrams/{dataset}/ the frequent n-grams.


rule train_tokenizer:
    input:
        unpack(tokenizer_inputs),
    output:
        tokenizer=LAYOUT.tokenizer("{dataset}"),
        description=LAYOUT.tokenizer("{dataset}", "tokenizer_config.json"),
    log:
        LAYOUT.log("train_tokenizer", "{dataset}"),
    benchmark:
        LAYOUT.benchmark("train_tokenizer", "{dataset}")
    params:
        rule="train_tokenizer",
        config=lambda wildcards: JOBS.dataset_config_file(wildcards.dataset),
        code=JOBS.code("train_tokenizer"),
        files=files,
    message:
        "Train the tokenizer of {wildcards.dataset}"
    shell:
        STEP


rule tokenize:
    input:
        unpack(tokenize_inputs),
    output:
        shards=directory(LAYOUT.data("{dataset}", "shards")),
        tokenizer=LAYOUT.data("{dataset}", "tokenizer.json"),
        description=LAYOUT.data("{dataset}", "tokenizer_config.json"),
        manifest=LAYOUT.manifest("{dataset}"),
    log:
        LAYOUT.log("tokenize", "{dataset}"),
    benchmark:
        LAYOUT.benchmark("tokenize", "{dataset}")
    threads: lambda wildcards: JOBS.workers(wildcards.dataset, CORES)
    params:
        rule="tokenize",
        config=lambda wildcards: JOBS.dataset_config_file(wildcards.dataset),
        code=JOBS.code("tokenize"),
        files=files,
    message:
        "Tokenize {wildcards.dataset}"
    shell:
        STEP


rule count_ngrams:
    input:
        data=LAYOUT.manifest("{dataset}"),
        shards=ancient(LAYOUT.data("{dataset}", "shards")),
    output:
        ngrams=LAYOUT.ngrams("{dataset}", "{suite}"),
        sums=LAYOUT.ngrams("{dataset}", "{suite}", ".sha256.json"),
    log:
        LAYOUT.log("count_ngrams", "{dataset}", "{suite}"),
    benchmark:
        LAYOUT.benchmark("count_ngrams", "{dataset}", "{suite}")
    params:
        rule="count_ngrams",
        config=lambda wildcards: JOBS.ngrams_config_file(
            wildcards.dataset, wildcards.suite
        ),
        code=JOBS.code("count_ngrams"),
        files=files,
    message:
        "Find the n-grams that are frequent in {wildcards.dataset}"
    shell:
        STEP
