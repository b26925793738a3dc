#!/usr/bin/env python
r"""Fine-tunes BERT to classify texts or pairs of texts, evaluates, and predicts.

The original's command:

    python run_classifier.py --task_name=MRPC --do_train=true --do_eval=true \
        --data_dir=/data/glue/MRPC --vocab_file=uncased_L-12_H-768_A-12/vocab.txt \
        --bert_config_file=uncased_L-12_H-768_A-12/bert_config.json \
        --init_checkpoint=uncased_L-12_H-768_A-12/bert_model.ckpt --max_seq_length=128 \
        --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0 --output_dir=/tmp/mrpc

Your own task, in /data/mine/train.csv, dev.csv and test.csv:

    python run_classifier.py --task_name=table --text_a_column=review --label_column=stars \
        --data_dir=/data/mine --do_train --do_eval --do_predict ...

To train a smaller model on the outputs of a fine-tuned one, add --teacher_checkpoint=/tmp/mrpc.

Started again, the same command resumes from the last checkpoint in --output_dir.
"""

from bert_tf.tasks import program

main = program.main_of("classification")

if __name__ == "__main__":
    program.run(main)
